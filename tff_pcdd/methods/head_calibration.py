"""Head calibrations: how the server re-trains the head of the global model after a round.

A calibration is a step after a method's own, for any method whose global model has a linear head
that clients train (`Method.fixed_head`). `calibrated.Calibrated` composes the two. To add one,
subclass `HeadCalibration` and decorate the class with `register`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from tff_pcdd.methods.hooks import CheckedHooks
from tff_pcdd.registry import Component, Registry
from tff_pcdd.settings import option

if TYPE_CHECKING:
    import tensorflow as tf

# A kernel [d, C] and a bias [C].
Head = tuple["tf.Tensor", "tf.Tensor"]


@dataclasses.dataclass(frozen=True)
class HeadCalibration(CheckedHooks, Component):
    """Re-trains the head of the global model; subclasses implement `retrain`.

    Attributes:
        tuning: as for `Method`.
        uses_features: whether `sums` needs features of the clients' samples. They are those of the
            backbone as it was broadcast, so the re-trained head fits this backbone and not the one
            that results from the round; see `calibrated.Calibrated`.
    """

    tuning: ClassVar[Mapping[str, tuple[Any, Any, Any]]] = {}
    uses_features: ClassVar[bool] = True

    @classmethod
    def prefix(cls) -> str:
        return f"{cls.name}_"

    @property
    def is_active(self) -> bool:
        """Whether anything is re-trained; with `epochs=0` the method stays as it is."""
        return bool(getattr(self, "epochs", True))

    def server_state(self, feature_dim: int, num_classes: int, seed: int) -> dict[str, Any]:
        """Tensors that the server keeps for the calibration, before the first round."""
        return {}

    def sums(
        self,
        head: tf.keras.layers.Dense,
        embed: Callable[[tf.Tensor], tf.Tensor],
        class_counts: tf.Tensor,
        reduce: Callable[..., Any],
    ) -> dict[str, tf.Tensor]:
        """What a client sends for the calibration; the server receives the sums over the cohort.

        Args:
            head: the re-trained head of the round before, as it was broadcast.
            embed: `embed(x)` returns features [n, d], float32, of the broadcast backbone.
            class_counts: float32 [C], the client's training samples of each class.
            reduce: as for `Method.upload`.
        """
        return {}

    def retrain(
        self, head: Head, retrained: Head, server: Mapping[str, Any], sums: Mapping[str, tf.Tensor]
    ) -> tuple[Head, dict[str, Any]]:
        """Trains a head at the server.

        Args:
            head: the head of the method after the round.
            retrained: the re-trained head of the round before, as it was broadcast.
            server: what `server_state` or the round before returned.
            sums: what the clients' `sums` returned, summed.

        Returns:
            The new re-trained head, and the server's new tensors.
        """
        raise NotImplementedError


def epochs_option(default: int) -> Any:
    """The setting of the epochs."""
    return option(default, "Epochs of re-training the head at the server; 0 for none.", minimum=0)


def learning_rate_option(default: float) -> Any:
    """The setting of the step size."""
    return option(
        default, "Learning rate of re-training the head, by SGD without momentum.", above=0
    )


registry: Registry[HeadCalibration] = Registry("head_calibration", "tff_pcdd.methods")
register = registry.register


@register
@dataclasses.dataclass(frozen=True)
class NoCalibration(HeadCalibration):
    """The head stays as the method leaves it."""

    name = "none"

    @property
    def is_active(self):
        return False
