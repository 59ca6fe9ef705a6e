"""FedLC: logits calibration.

Federated Learning with Label Distribution Skew via Logits Calibration; J. Zhang, Z. Li, B. Li, J.
Xu, S. Wu, S. Ding, C. Wu; ICML 2022.

Differs from FedAvg in the local loss: from the logit of class c the client takes τ·n_{k,c}^(-1/4),
so that rare classes are trained with a larger margin (eq. 7). Predictions use plain logits.

The paper leaves the true class out of the softmax's denominator, by which the loss has no lower
bound and training is reported to collapse; the default is the full denominator of common programs,
the paper's is `denominator=others`. A class that the client lacks has an infinite offset and leaves
the softmax. With τ = 0 and the full denominator it is FedAvg.
"""

import dataclasses
from typing import ClassVar

from etils import epy

from tff_pcdd.methods.method import Method, cross_entropy, register
from tff_pcdd.options import option

with epy.lazy_imports():
    import tensorflow as tf

    from tff_pcdd import losses


@register
@dataclasses.dataclass(frozen=True)
class FedLC(Method):
    """FedAvg with logits calibrated by the client's class counts."""

    name = "fedlc"
    degenerate: ClassVar = {"tau": 0.0}

    tau: float = option(1.0, "τ, size of the calibration.", minimum=0)
    denominator: str = option(
        "all",
        "Classes in the softmax's denominator: all, or all others than the true one (paper).",
        choices=("all", "others"),
    )

    def calibrate(self, logits, class_counts):
        """Logits [batch, C] less τ·n^(-1/4) of counts [C]; those of missing classes are masked."""
        if not self.tau:
            return logits
        margins = self.tau * tf.pow(tf.maximum(class_counts, 1.0), -0.25)
        return losses.mask_logits(logits - margins, class_counts > 0)

    def loss(self, net, batch, client):
        logits = net["head"](self.embed(net, batch.x, training=True))
        calibrated = self.calibrate(logits, client.class_counts)
        if self.denominator == "all":
            return cross_entropy(batch.y, calibrated), {}
        true = tf.one_hot(batch.y, calibrated.shape[1])
        others = losses.mask_logits(calibrated, 1 - true)
        margin = tf.reduce_logsumexp(others, axis=1) - tf.reduce_sum(true * calibrated, axis=1)
        # A client with one class has nothing to keep a margin to.
        several = tf.math.count_nonzero(client.class_counts) > 1
        return tf.where(several, tf.reduce_mean(margin), 0.0), {}
