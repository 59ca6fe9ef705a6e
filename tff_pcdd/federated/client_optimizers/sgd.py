"""SGD with clipping, coupled weight decay and momentum."""

from __future__ import annotations

import dataclasses

from etils import epy

from tff_pcdd.federated.client_optimizers.optimizer import (
    ClientOptimizer,
    clip_norm_option,
    learning_rate_option,
    register,
    weight_decay_option,
    zeros,
)
from tff_pcdd.settings import option

with epy.lazy_imports():
    import tensorflow as tf


@register
@dataclasses.dataclass(frozen=True)
class SGD(ClientOptimizer):
    """Stochastic gradient descent as in the papers' code.

    The momentum accumulates the gradient, clipped and with weight decay; the variable is moved by
    the learning rate times the momentum. Keras' optimizers decouple the decay or clip after it.
    """

    name = "sgd"

    learning_rate: float = learning_rate_option(0.01)
    momentum: float = option(
        0.9,
        "Momentum of the clients' SGD, reset to zero in each round; 0 for none.",
        minimum=0,
        maximum=0.9999,
    )
    weight_decay: float = weight_decay_option()
    clip_norm: float = clip_norm_option()

    def accumulators(self, variable):
        return [zeros(variable.shape, variable.dtype, "momentum")] if self.momentum else []

    def _step(self, gradient, variable, accumulators):
        if not self.momentum:
            variable.assign_sub(self.learning_rate * gradient)
            return
        # One fused kernel: accumulator = momentum·accumulator + g; w -= lr·accumulator.
        tf.raw_ops.ResourceApplyMomentum(
            var=variable.handle,
            accum=accumulators[0].handle,
            lr=self.learning_rate,
            grad=gradient,
            momentum=self.momentum,
        )
