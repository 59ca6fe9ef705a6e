"""FedLC: logits calibration.

Federated Learning with Label Distribution Skew via Logits Calibration; J. Zhang, Z. Li, B. Li, J.
Xu, S. Wu, S. Ding, C. Wu; ICML 2022.

Differs from FedAvg in the local loss: the client subtracts τ·n_{k,c}^(-1/4) from the logit of class
c, so that rare classes are trained with a larger margin (eq. 7). A class that the client lacks
would have an infinite offset and is excluded from the softmax. Predictions use the uncalibrated
logits. With τ = 0 and the full denominator it is FedAvg.

Departure from the paper: the paper omits the true class from the denominator of the softmax, so the
loss has no lower bound and training is reported to collapse. The default here is the full
denominator of common implementations; `denominator=others` is that of the paper.
"""

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
class FedLC(Method):
    """FedAvg with logits calibrated by the client's class counts."""

    name = "fedlc"
    degenerate: ClassVar = {"tau": 0.0}
    tuning: ClassVar = {"tau": (0.1, 0.5, 1.0)}

    tau: float = option(1.0, "τ, strength of the calibration.", minimum=0)
    denominator: str = option(
        "all",
        "Classes in the denominator of the softmax: all, or all except the true one (paper).",
        choices=("all", "others"),
    )

    def calibrate(self, logits, class_counts):
        """Logits [batch, C] minus τ·n^(-1/4) for counts n [C]; missing classes are masked."""
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
        # A client with a single class has no other class to keep a margin to.
        several = tf.math.count_nonzero(client.class_counts) > 1
        return tf.where(several, tf.reduce_mean(margin), 0.0), {}
