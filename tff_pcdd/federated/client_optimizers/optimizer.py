"""The base class of the clients' optimizers, and their registry."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any, TypeVar

from etils import epy

from tff_pcdd.errors import SettingError
from tff_pcdd.methods.contract import Method
from tff_pcdd.registry import Component, Registry
from tff_pcdd.settings import option

with epy.lazy_imports():
    import tensorflow as tf

# Entries of all gradients from which it is worth a branch to leave out a multiplication by 1.
_LARGE = 1 << 20

Self = TypeVar("Self", bound="ClientOptimizer")


class ClientOptimizer(Component):
    """Takes the steps of local training; subclasses implement `accumulators` and `_step`.

    The steps, in this order: the gradient of all variables together is clipped to a global L2 norm;
    weight decay·w is added (coupled, and therefore not clipped); the variable is moved by the
    method's own rule. What is accumulated starts from zero in each round and each phase.

    Attributes:
        learning_rate: the step size. A float in settings; while a client trains, the scheduled
            value of the round, a float32 scalar tensor.
        weight_decay: factor of the variables that is added to their gradients.
        clip_norm: maximum global L2 norm of a gradient; 0 for no clipping.
    """

    learning_rate: float
    weight_decay: float
    clip_norm: float

    @classmethod
    def prefix(cls) -> str:
        return "client_"

    def check(self, method: Method) -> None:
        """Refuses methods whose formulas contain the step size and the momentum of SGD."""
        if method.assumes_sgd and self.name != "sgd":
            raise SettingError(
                registry.setting,
                self.name,
                f"{method.name} is defined for the steps of SGD; choose {registry.setting}=sgd or "
                "another method",
            )

    def with_rate(self: Self, learning_rate: float | tf.Tensor) -> Self:
        """The same optimizer with another step size, which may be a tensor."""
        other = copy.copy(self)
        object.__setattr__(other, "learning_rate", learning_rate)
        return other

    def accumulators(self, variable: tf.Variable) -> list[tf.Variable]:
        """Makes the variables, all zero, in which the steps of a variable accumulate."""
        raise NotImplementedError

    def apply(
        self,
        gradients: Sequence[tf.Tensor | None],
        variables: Sequence[tf.Variable],
        accumulators: Sequence[Sequence[tf.Variable]],
    ) -> None:
        """Takes one step in place; a variable without a gradient is not changed at all.

        Args:
            gradients: gradients of the loss, one for each variable; None if the loss does not
                depend on it.
            variables: the variables to change.
            accumulators: for each variable, what `accumulators(variable)` returned.
        """
        used: Sequence[tf.Tensor] = [tf.convert_to_tensor(g) for g in gradients if g is not None]
        if self.clip_norm:
            # As in torch's clip_grad_norm_, 1e-6 keeps the factor finite for a gradient of zero.
            factor = tf.minimum(1.0, self.clip_norm / (tf.linalg.global_norm(used) + 1e-6))
            used = _scaled(used, factor)
        scaled = iter(used)
        for gradient, variable, own in zip(gradients, variables, accumulators, strict=True):
            if gradient is not None:
                self._step(self._decay(next(scaled), variable), variable, own)

    def _decay(self, gradient: tf.Tensor, variable: tf.Variable) -> tf.Tensor:
        """The gradient with weight decay."""
        return gradient + self.weight_decay * variable if self.weight_decay else gradient

    def _step(
        self, gradient: tf.Tensor, variable: tf.Variable, accumulators: Sequence[tf.Variable]
    ) -> None:
        """Moves a variable."""
        raise NotImplementedError


def _scaled(gradients: Sequence[tf.Tensor], factor: tf.Tensor) -> Sequence[tf.Tensor]:
    """Gradients times a factor, which is 1 in most steps."""

    def scale():
        return [gradient * factor for gradient in gradients]

    if sum(gradient.shape.num_elements() for gradient in gradients) < _LARGE:
        return scale()
    # Reading and writing so many numbers takes much longer than a branch. NaN is not equal to 1.
    return tf.cond(tf.equal(factor, 1.0), lambda: list(gradients), scale)


def zeros(shape: Any, dtype: tf.DType, name: str) -> tf.Variable:
    """An accumulator."""
    return tf.Variable(tf.zeros(shape, dtype), trainable=False, name=name)


def learning_rate_option(default: float) -> Any:
    """The setting of the step size."""
    return option(default, "Learning rate of the clients' optimizer.", above=0)


def weight_decay_option() -> Any:
    """The setting of the weight decay."""
    return option(
        1e-4,
        "Weight decay of the clients' optimizer, for all variables that are trained; added to the "
        "clipped gradient (coupled), by adamw to the step (decoupled).",
        minimum=0,
    )


def clip_norm_option() -> Any:
    """The setting of the gradient clipping."""
    return option(
        20.0,
        "Maximum global L2 norm of a local gradient; 0 for no clipping.",
        minimum=0,
    )


registry: Registry[ClientOptimizer] = Registry(
    "client_optimizer", "tff_pcdd.federated.client_optimizers"
)
register = registry.register
