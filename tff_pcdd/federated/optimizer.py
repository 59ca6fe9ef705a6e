"""The clients' optimiser: SGD with clipping, coupled weight decay and momentum in one step."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import tensorflow as tf


@dataclasses.dataclass(frozen=True)
class SGD:
    """Stochastic gradient descent as the papers' code does it.

    In this order: the gradient of all variables together is clipped to a global L2 norm, weight
    decay·w is added (coupled, and so not clipped), momentum accumulates the sum, and the variable
    moves against the accumulator. Keras' optimisers decouple the decay or clip after it.

    Attributes:
        learning_rate: step size.
        momentum: share of the accumulator that stays, 0 for none.
        weight_decay: coefficient of w in the gradient, for every variable the step moves.
        clip_norm: largest global norm of the gradient, 0 for no clipping.
    """

    learning_rate: float
    momentum: float = 0.0
    weight_decay: float = 0.0
    clip_norm: float = 0.0

    def slots(self, variables: Sequence[tf.Variable]) -> list[tf.Variable]:
        """Makes the accumulators, one for each variable; none without momentum."""
        if not self.momentum:
            return []
        return [
            tf.Variable(tf.zeros(v.shape, v.dtype), trainable=False, name="momentum")
            for v in variables
        ]

    def apply(
        self,
        gradients: Sequence[tf.Tensor | None],
        variables: Sequence[tf.Variable],
        slots: Sequence[tf.Variable],
    ) -> None:
        """Takes one step in place; a variable without a gradient does not move at all.

        Args:
            gradients: of the loss, one for each variable, `None` where the loss does not use it.
            variables: to be moved.
            slots: what `slots(variables)` made.
        """
        present = [g is not None for g in gradients]
        used = [g for g in gradients if g is not None]
        if self.clip_norm:
            # The 1e-6 keeps the factor finite for a gradient of zero, as torch's clip_grad_norm_.
            factor = tf.minimum(1.0, self.clip_norm / (tf.linalg.global_norm(used) + 1e-6))
            used = [g * factor for g in used]
        scaled = iter(used)
        for index, variable in enumerate(variables):
            if not present[index]:
                continue
            gradient = next(scaled)
            if self.weight_decay:
                gradient += self.weight_decay * variable
            if self.momentum:
                # One fused kernel: accumulator = momentum·accumulator + g; w -= lr·accumulator.
                tf.raw_ops.ResourceApplyMomentum(
                    var=variable.handle,
                    accum=slots[index].handle,
                    lr=self.learning_rate,
                    grad=gradient,
                    momentum=self.momentum,
                )
            else:
                variable.assign_sub(self.learning_rate * gradient)
