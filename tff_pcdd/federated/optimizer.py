"""The clients' optimizer: SGD with clipping, coupled weight decay and momentum."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from etils import epy

from tff_pcdd.settings import check_options, option

# Listing these settings must not import TensorFlow.
with epy.lazy_imports():
    import tensorflow as tf

_GROUP = "Training"


@dataclasses.dataclass(frozen=True)
class SGD:
    """Stochastic gradient descent as in the papers' code.

    The steps, in this order: the gradient of all variables together is clipped to a global L2 norm;
    weight decay·w is added (coupled, and therefore not clipped); the momentum accumulates the sum;
    the variable is moved by the learning rate times the momentum. Keras' optimizers decouple the
    decay or clip after it.

    Raises:
        SettingError: a setting is out of bounds.
    """

    learning_rate: float = option(0.01, "Learning rate of the clients' SGD.", above=0, group=_GROUP)
    momentum: float = option(
        0.9,
        "Momentum of the clients' SGD, reset to zero in each round; 0 for none.",
        minimum=0,
        maximum=0.9999,
        group=_GROUP,
    )
    weight_decay: float = option(
        1e-4,
        "Coupled weight decay of the clients' SGD, for all variables that are trained.",
        minimum=0,
        group=_GROUP,
    )
    clip_norm: float = option(
        20.0,
        "Maximum global L2 norm of a local gradient; 0 for no clipping.",
        minimum=0,
        group=_GROUP,
    )

    def __post_init__(self) -> None:
        check_options(self)

    @classmethod
    def prefix(cls) -> str:
        """The prefix of the names of its settings."""
        return "client_"

    def momenta(self, variables: Sequence[tf.Variable]) -> list[tf.Variable]:
        """Makes a momentum variable for each variable; an empty list if `momentum` is 0."""
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
        momenta: Sequence[tf.Variable],
    ) -> None:
        """Takes one step in place; a variable without a gradient is not changed at all.

        Args:
            gradients: gradients of the loss, one for each variable; None if the loss does not
                depend on it.
            variables: the variables to change.
            momenta: as returned by `momenta(variables)`.
        """
        present = [g is not None for g in gradients]
        used = [g for g in gradients if g is not None]
        if self.clip_norm:
            # As in torch's clip_grad_norm_, 1e-6 keeps the factor finite for a gradient of zero.
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
                    accum=momenta[index].handle,
                    lr=self.learning_rate,
                    grad=gradient,
                    momentum=self.momentum,
                )
            else:
                variable.assign_sub(self.learning_rate * gradient)
