"""The base class of server optimizers, and their registry."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from etils import epy

from tff_pcdd.errors import SettingError
from tff_pcdd.methods.calibrated import alternative
from tff_pcdd.methods.contract import Method
from tff_pcdd.methods.network import moves
from tff_pcdd.registry import Component, Registry
from tff_pcdd.settings import option

with epy.lazy_imports():
    import tensorflow as tf

if TYPE_CHECKING:
    from tff_pcdd.federated.upload import UploadSizes


# The optimizer's tensors, by name: a list with a tensor for each of the weights.
State = dict[str, list[Any]]


@dataclasses.dataclass(frozen=True)
class ServerOptimizer(Component):
    """Turns the clients' mean change Δ into the server's step; subclasses implement `_step`.

    It acts on the shared trainable weights only. Normalization statistics, and what clients keep
    and the server only averages (`Placement.MIRRORED`), are averaged as without it.
    """

    @classmethod
    def prefix(cls) -> str:
        return "server_"

    @property
    def adds_change(self) -> bool:
        """Whether the step is the mean change itself, as in FedAvg."""
        return False

    def check_method(self, method: Method) -> None:
        """Refuses methods with a server step of their own."""
        if self.adds_change:
            return
        if method.pools_samples:
            reason = f"{method.name} trains on all samples in one place; the server takes no step"
            raise self._refusal(reason)
        if not method.adds_mean():
            instead = alternative(method, lambda own: own.adds_mean())
            raise self._refusal(f"{method.name} has a server step of its own", instead)

    def check(self, method: Method, upload: UploadSizes) -> None:
        """Refuses methods if the server does not step along the mean of what clients send."""
        self.check_method(method)
        if not self.adds_change and not upload.trainable:
            raise self._refusal(f"clients of {method.name} send no weights")

    def _refusal(self, reason: str, instead: str = "another method") -> SettingError:
        """The error of the setting that makes the step another one than that of FedAvg."""
        choice = f"{registry.setting}=sgd with server_learning_rate=1, or {instead}"
        return SettingError(registry.setting, self.name, f"{reason}; choose {choice}", kind=reason)

    def initial_state(self, weights: Sequence[tf.Tensor]) -> State:
        """The tensors for the shared trainable weights before the first round; none by default."""
        return {}

    def step(self, change: Sequence[tf.Tensor], state: State) -> tuple[list[tf.Tensor], State]:
        """The change of the weights, and the optimizer's new tensors, from the mean change Δ.

        A cohort of which no client sends a change, because none has samples or all were excluded,
        changes neither of them.
        """
        if self.adds_change:
            return list(change), state
        steps, new = self._step(change, state)
        moved = moves(change)
        steps = [tf.where(moved, step, 0.0) for step in steps]
        return steps, {
            name: [tf.where(moved, n, o) for n, o in zip(values, state[name], strict=True)]
            for name, values in new.items()
        }

    def _step(self, change: Sequence[tf.Tensor], state: State) -> tuple[list[tf.Tensor], State]:
        """The same for a cohort that sends changes."""
        raise NotImplementedError


def learning_rate_option(default: float) -> Any:
    """The setting of the server's step size."""
    return option(default, "η, learning rate of the server.", above=0)


registry: Registry[ServerOptimizer] = Registry(
    "server_optimizer", "tff_pcdd.federated.server_optimizers"
)
register = registry.register
