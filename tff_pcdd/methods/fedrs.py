"""FedRS: restricted softmax.

FedRS: Federated Learning with Restricted Softmax for Label Distribution Non-IID Data; X.-C. Li,
D.-C. Zhan; KDD 2021.

Differs from FedAvg in the local softmax: logits of classes that the client lacks are multiplied by
α, so that their classifier vectors are pushed away less (eq. 5). The whole logit is scaled,
including the bias. Predictions use the unscaled logits. With α = 1 it is FedAvg.

The authors' code also scales the logits of rare classes, by α + (1 - α)·n_c/max n; this is the
option `graded`.
"""

import dataclasses
from typing import ClassVar

from etils import epy

from tff_pcdd.methods.contract import Method, register
from tff_pcdd.methods.network import cross_entropy
from tff_pcdd.settings import option

with epy.lazy_imports():
    import tensorflow as tf


@register
@dataclasses.dataclass(frozen=True)
class FedRS(Method):
    """FedAvg with a softmax that is partly restricted to the client's classes."""

    name = "fedrs"
    degenerate: ClassVar = {"alpha": 1.0}
    tuning: ClassVar = {"alpha": (0.1, 0.5, 0.9)}

    alpha: float = option(0.5, "α, factor of the logits of missing classes.", minimum=0, maximum=1)
    graded: bool = option(False, "Scale logits by class frequency as well (authors' code).")

    def constants(self, class_counts, task):
        present = tf.cast(class_counts > 0, tf.float32)
        if self.graded:
            present = tf.math.divide_no_nan(class_counts, tf.reduce_max(class_counts))
        return {"factor": self.alpha + (1 - self.alpha) * present}

    def loss(self, net, batch, client):
        logits = net["head"](self.embed(net, batch.x, training=True))
        return cross_entropy(batch.y, client.constants["factor"] * logits), {}
