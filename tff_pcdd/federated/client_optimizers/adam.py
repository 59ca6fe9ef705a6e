"""Adam, and Adam with decoupled weight decay.

Adam: A Method for Stochastic Optimization; D. P. Kingma, J. Ba; ICLR 2015.
Decoupled Weight Decay Regularization; I. Loshchilov, F. Hutter; ICLR 2019.
"""

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
class Adam(ClientOptimizer):
    """Adam (Kingma and Ba, algorithm 1), whose moments and step count restart in each round.

    With the gradient g of step t, clipped and with weight decay: m ← β1·m + (1 - β1)·g,
    v ← β2·v + (1 - β2)·g², w ← w - α·(m/(1 - β1^t))/(√(v/(1 - β2^t)) + ε). Steps in which a
    variable has no gradient do not count for it.
    """

    name = "adam"

    learning_rate: float = learning_rate_option(0.001)
    beta1: float = option(0.9, "β1, decay of the mean gradient.", minimum=0, maximum=0.9999)
    beta2: float = option(
        0.999, "β2, decay of the mean squared gradient.", minimum=0, maximum=0.999999
    )
    epsilon: float = option(1e-8, "ε, added to the root of the mean squared gradient.", above=0)
    weight_decay: float = weight_decay_option()
    clip_norm: float = clip_norm_option()

    def accumulators(self, variable):
        moments = [zeros(variable.shape, variable.dtype, name) for name in ("mean", "square")]
        return [*moments, zeros([], tf.float32, "steps")]

    def _step(self, gradient, variable, accumulators):
        mean, square, steps = accumulators
        steps.assign_add(1.0)
        beta1_power = tf.pow(self.beta1, steps)
        beta2_power = tf.pow(self.beta2, steps)
        # The fused kernel moves w by α·√(1 - β2^t)/(1 - β1^t)·m/(√v + epsilon), which is the rule
        # above for this epsilon.
        tf.raw_ops.ResourceApplyAdam(
            var=variable.handle,
            m=mean.handle,
            v=square.handle,
            beta1_power=beta1_power,
            beta2_power=beta2_power,
            lr=self.learning_rate,
            beta1=self.beta1,
            beta2=self.beta2,
            epsilon=self.epsilon * tf.sqrt(1 - beta2_power),
            grad=gradient,
        )


@register
@dataclasses.dataclass(frozen=True)
class AdamW(Adam):
    """Adam with decoupled weight decay (Loshchilov and Hutter, algorithm 2).

    Before a step of Adam, the variable is multiplied by 1 - α·λ, where λ is the weight decay. The
    paper's decay per step, which does not contain the step size, is α·λ here, as in most code.
    """

    name = "adamw"

    def _decay(self, gradient, variable):
        return gradient

    def _step(self, gradient, variable, accumulators):
        if self.weight_decay:
            variable.assign_sub(self.learning_rate * self.weight_decay * variable)
        super()._step(gradient, variable, accumulators)
