"""FedGELA: globally fixed simplex ETF, locally adapted.

Federated Learning with Bilateral Curation for Partially Class-Disjoint Data; Z. Fan, R. Zhang, J.
Yao, B. Han, Y. Zhang, Y. Wang; NeurIPS 2023.

Differs from FedAvg in the head. It is a simplex ETF M fixed for all (as in FedGE), and at client k
each of its columns is stretched by Φ_k, the client's share of that class over the even share (eq.
4): W_k = Φ_k ⊙ M. Logits are s·Φ_k ⊙ (Mᵀh) with features of unit length (eq. 5). The client spends
no angle on classes it lacks, while all clients agree on the directions. The global model is M, the
personal one Φ_k ⊙ M.

Where the paper and its code differ: features are L2-normalised (paper; the code uses a batch norm,
option `features`), the softmax runs over all classes with logit 0 for missing ones (code; the
paper's runs over the client's classes, option `masked`, under which a client with one class never
trains), and `scale` is the multiplier of the logits, √E_W of the formula and 1/T of the code. With
Φ = 1 it is FedGE.

Not in the paper is `adaptation="relative"`, for data whose classes are unequal at every client,
such as the characters of a text: the share is taken over the class's share in the federation
instead of 1/C. Otherwise Φ is long in the classes that are frequent everywhere and asks little of
their features' angle, and M, without Φ, hardly ever names them. Where the whole is balanced, the
two are the same.
"""

from __future__ import annotations

import dataclasses

from etils import epy

from tff_pcdd.methods.fedge import FedGE
from tff_pcdd.methods.method import Placement, cross_entropy, linear_head, register
from tff_pcdd.options import option

with epy.lazy_imports():
    from tff_pcdd import losses


@register
@dataclasses.dataclass(frozen=True)
class FedGELA(FedGE):
    """FedAvg with a fixed simplex-ETF classifier that each client stretches by Φ."""

    name = "fedgela"

    adaptation: str = option(
        "linear",
        "Φ as a function of the class's share at the client: linear (paper), sqrt, exp (table 6), "
        "relative (over its share in the whole federation), none (which is FedGE).",
        choices=("linear", "sqrt", "exp", "relative", "none"),
    )
    masked: bool = option(
        False, "Softmax over the client's own classes only (paper, eq. 5) instead of over all."
    )
    classifier: str = option(
        "etf",
        "etf, or trainable: a linear head that is trained and averaged, with the adaptation "
        "(the paper's ablation 'LA only', table 4).",
        choices=("etf", "trainable"),
    )

    def build(self, task):
        parts = super().build(task)
        if self.classifier == "trainable":
            parts["head"] = linear_head(task)
        return parts

    def least_features(self, num_classes):
        return 1 if self.classifier == "trainable" else super().least_features(num_classes)

    def placement(self, part, layer):
        if self.classifier == "trainable":
            return Placement.SHARED
        return super().placement(part, layer)

    def constants(self, class_counts, task):
        if self.adaptation == "none":
            return {"phi": class_counts * 0 + 1}
        if self.adaptation == "relative":
            # A vector [C]: one over the shares of the classes in the federation.
            totals = task.class_counts.sum(axis=0)
            variant, normalizer = "linear", totals.sum() / totals.clip(min=1)
        else:
            variant = self.adaptation
            normalizer = losses.phi_normalizer(task.class_counts, variant)
        return {"phi": losses.phi_from_counts(class_counts, variant, normalizer)}

    def loss(self, net, batch, client):
        logits = client.constants["phi"] * net["head"](self.embed(net, batch.x, training=True))
        if self.masked:
            logits = losses.mask_logits(logits, client.class_counts > 0)
        return cross_entropy(batch.y, logits), {}

    def personal_logits(self, net, x, client):
        return client.constants["phi"] * net["head"](self.embed(net, x, training=False))

    def personal_phases(self, net, epochs):
        return self.phases(net, epochs)
