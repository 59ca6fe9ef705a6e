"""FedGELA: globally fixed simplex ETF, locally adapted.

Federated Learning with Bilateral Curation for Partially Class-Disjoint Data; Z. Fan, R. Zhang, J.
Yao, B. Han, Y. Zhang, Y. Wang; NeurIPS 2023.

Differs from FedAvg in the head. It is a simplex ETF M, fixed and the same for all clients (as in
FedGE). Client k multiplies each column of M by its entry of Φ_k, the share of that class among the
client's samples divided by the uniform share 1/C (eq. 4): W_k = Φ_k ⊙ M. Logits are s·Φ_k ⊙ (Mᵀh)
for features h of length 1 (eq. 5). A client spends none of the feature space on classes that it
lacks, while all clients agree on the directions of the classes. The global model uses M, the
personal model Φ_k ⊙ M. With Φ = 1 it is FedGE.

Where the paper and its code differ:
- Features are L2-normalized (paper); the code uses a batch normalization (option `features`).
- The softmax includes all classes, with logit 0 for missing ones (code). In the paper, it includes
  only the client's own classes (option `masked`); a client with a single class then never trains.
- `scale` multiplies the logits; it is √E_W in the paper and 1/T in the code.
- The projection before the head is one linear layer (paper); in the code, a linear layer with a
  ReLU precedes it.

Not in the paper: `adaptation="relative"`, for data whose classes are unequal at every client, such
as the characters of a text. The client's share is divided by the class's share in the federation
instead of 1/C. Otherwise Φ is large for classes that are frequent everywhere, so their features
need only a small cosine, and M without Φ hardly ever predicts them. If the federation is balanced,
both are the same.
"""

from __future__ import annotations

import dataclasses

from etils import epy

from tff_pcdd.methods.contract import register
from tff_pcdd.methods.fedge import FedGE
from tff_pcdd.methods.network import Placement, cross_entropy, linear_head
from tff_pcdd.settings import option

with epy.lazy_imports():
    import tensorflow as tf

    from tff_pcdd import losses


@register
@dataclasses.dataclass(frozen=True)
class FedGELA(FedGE):
    """FedAvg with a fixed simplex-ETF classifier that each client scales by Φ."""

    name = "fedgela"

    adaptation: str = option(
        "linear",
        "Φ as a function of the class's share at the client: linear (paper), sqrt, exp (table 6), "
        "relative (divided by its share in the federation) or none (FedGE).",
        choices=("linear", "sqrt", "exp", "relative", "none"),
    )
    masked: bool = option(
        False, "Softmax over the client's own classes (paper, eq. 5) instead of all classes."
    )
    classifier: str = option(
        "etf",
        "Classifier: etf (fixed), or trainable (a linear head that is trained and averaged, with "
        "the same adaptation; ablation 'LA only', table 4).",
        choices=("etf", "trainable"),
    )

    def build(self, task):
        parts = super().build(task)
        if self.classifier == "trainable":
            parts["head"] = linear_head(task)
        return parts

    @property
    def fixed_head(self):
        return (
            "has a head that clients scale"
            if self.classifier == "trainable"
            else super().fixed_head
        )

    def least_features(self, num_classes):
        return 1 if self.classifier == "trainable" else super().least_features(num_classes)

    def placement(self, part, layer):
        if self.classifier == "trainable":
            return Placement.SHARED
        return super().placement(part, layer)

    def advice(self, optimizer):
        if self.classifier == "trainable" and self.scale != type(self).scale:
            return f"{self.prefix()}scale={self.scale:g} has no effect on a trainable classifier"
        return super().advice(optimizer)

    def advice_on_backbone(self, has_normalization):
        is_fixed = self.classifier == "etf"
        return super().advice_on_backbone(has_normalization) if is_fixed else None

    @property
    def uses_federation_counts(self):
        # The normalizer of the linear Φ is C for any counts.
        return self.adaptation not in ("linear", "none")

    def constants(self, class_counts, task):
        if self.adaptation == "none":
            return {"phi": class_counts * 0 + 1}
        if self.adaptation == "relative":
            # Vector [C]: the reciprocal of each class's share in the federation.
            totals = task.class_counts.sum(axis=0)
            variant, normalizer = "linear", totals.sum() / totals.clip(min=1)
        else:
            variant = self.adaptation
            normalizer = losses.phi_normalizer(task.class_counts, variant)
        phi = losses.phi_from_counts(class_counts, variant, normalizer)
        # A client without training samples has the global model.
        return {"phi": tf.where(tf.reduce_any(class_counts > 0), phi, tf.ones_like(phi))}

    def loss(self, net, batch, client):
        logits = client.constants["phi"] * net["head"](self.embed(net, batch.x, training=True))
        if self.masked:
            logits = losses.mask_logits(logits, client.class_counts > 0)
        return cross_entropy(batch.y, logits), {}

    def personal_logits(self, net, x, client):
        return client.constants["phi"] * net["head"](self.embed(net, x, training=False))

    def personal_phases(self, net, epochs):
        return self.phases(net, epochs)
