"""FedNova: normalized averaging.

Tackling the Objective Inconsistency Problem in Heterogeneous Federated Optimization; J. Wang, Q.
Liu, H. Liang, G. Joshi, H. V. Poor; NeurIPS 2020.

Differs from FedAvg in the mean over clients. A client that takes more steps moves further, and
FedAvg gives it more influence. Here each change is divided by ‖a_k‖₁, the total weight of the
gradients in it, and the mean is multiplied by τ_eff = Σ p_k ‖a_k‖₁ (eq. 6 and 7). For τ steps of
SGD with momentum ρ, ‖a‖₁ = (τ - ρ(1 - ρ^τ)/(1 - ρ))/(1 - ρ). If all clients take the same number of
steps it is FedAvg.

Statistics of normalization layers are averaged as in FedAvg: the normalized weights can sum to more
than one, which could make a variance negative.
"""

from __future__ import annotations

import dataclasses

from etils import epy

from tff_pcdd.methods.contract import Method, register
from tff_pcdd.methods.records import Upload

with epy.lazy_imports():
    import tensorflow as tf


def accumulated_weight(steps: tf.Tensor, momentum: float) -> tf.Tensor:
    """‖a‖₁ of SGD with momentum: the total weight of the gradients in the change of the model.

    Args:
        steps: τ, number of steps, of any numeric type.
        momentum: ρ in [0, 1).

    Returns:
        float32 with the shape of `steps`; τ itself without momentum.
    """
    # The two numbers are almost equal if ρ is near 1; in float32, their difference would have no
    # correct digits.
    steps = tf.cast(steps, tf.float64)
    decayed = momentum * (1 - tf.pow(tf.constant(momentum, tf.float64), steps)) / (1 - momentum)
    return tf.cast((steps - decayed) / (1 - momentum), tf.float32)


@register
@dataclasses.dataclass(frozen=True)
class FedNova(Method):
    """FedAvg of changes that are divided by the number of effective local steps."""

    name = "fednova"
    assumes_sgd = True

    def _effective_steps(self, client):
        return accumulated_weight(client.steps, client.optimizer.momentum)

    def update(self, net, client):
        steps = self._effective_steps(client)
        return [tf.math.divide_no_nan(delta, steps) for delta in super().update(net, client)]

    def upload(self, net, client, reduce):
        weight = self.weight(client)
        sums = {"weight": weight, "steps": weight * self._effective_steps(client)}
        return Upload(sums, client.state)

    def server_change(self, change, sums):
        effective = tf.math.divide_no_nan(sums["steps"], sums["weight"])
        return [effective * delta for delta in change]
