"""Unequal local work: drawn epochs, stragglers, and clients that drop out of a round.

Federated Optimization in Heterogeneous Networks; T. Li, A. K. Sahu, M. Zaheer, M. Sanjabi, A.
Talwalkar, V. Smith; MLSys 2020; section 5.2, in which stragglers do a random part of their epochs.

All draws are functions of the client's seed of the round, and thus of (seed, round, client), so
that they are the same on every runtime. Epochs and shares of steps are drawn where a client trains.
Who drops out is drawn before the round: its computations have a cohort without those clients, so
that whatever the aggregator counts, they count like clients that were not drawn.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from etils import epy

from tff_pcdd.settings import check_options, option

with epy.lazy_imports():
    import tensorflow as tf

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tff_pcdd.methods.records import Phase


# Folded into a client's seed; phases use the numbers from 0, the method's own draws another one.
_DRAWS = (1 << 20) + 1

# A share of the steps is drawn as a multiple of one part in so many.
_PARTS = 1 << 16


@dataclasses.dataclass(frozen=True)
class LocalWork:
    """How much of the local epochs the clients of a round do; by default all of them."""

    heading: ClassVar[str] = "Training"

    min_local_epochs: int = option(
        0,
        "If above 0, each client of a round draws its number of local epochs uniformly from this "
        "one to local_epochs.",
        minimum=0,
    )
    straggler_share: float = option(
        0.0,
        "Probability with which a client of a round is a straggler, which finishes only a share of "
        "its steps, drawn uniformly.",
        minimum=0,
        maximum=1,
    )
    dropped_share: float = option(
        0.0,
        "Probability with which a client drops out of a round: what it computed is lost.",
        minimum=0,
        maximum=0.9999,
    )

    def __post_init__(self) -> None:
        check_options(self)

    @property
    def is_full(self) -> bool:
        """Whether all clients do all of their work."""
        return not (self.min_local_epochs or self.straggler_share or self.dropped_share)

    def draw(self, seed: tf.Tensor, local_epochs: int) -> Draws:
        """What a client that does not drop out does in a round.

        Args:
            seed: the client's seed of the round, int32 [2].
            local_epochs: E, the most epochs.
        """

        def uniform(number):
            return tf.random.stateless_uniform([], _key(seed, number))

        def whole(number, least, most):
            key = _key(seed, number)
            return tf.random.stateless_uniform([], key, least, most + 1, tf.int64)

        epochs, parts = tf.constant(local_epochs, tf.int64), tf.constant(_PARTS, tf.int64)
        if self.min_local_epochs:
            epochs = whole(0, self.min_local_epochs, local_epochs)
        if self.straggler_share:
            parts = tf.where(uniform(1) < self.straggler_share, whole(2, 1, _PARTS), parts)
        return Draws(epochs, parts, local_epochs)

    def drops_out(self, seed: Any) -> bool:
        """Whether the client with this seed of the round, int32 [2], drops out of it."""
        if not self.dropped_share:
            return False
        return float(tf.random.stateless_uniform([], _key(seed, 3))) < self.dropped_share


class Draws(NamedTuple):
    """How much a client trains in a round.

    Attributes:
        epochs: its number of local epochs, int64 scalar.
        parts: how many of 65,536 equal parts of its steps it finishes, int64 scalar.
        local_epochs: E, the most epochs.
    """

    epochs: tf.Tensor
    parts: tf.Tensor
    local_epochs: int

    def steps(self, phases: Sequence[Phase], steps_per_epoch: tf.Tensor) -> list[tf.Tensor]:
        """The steps that the client takes in each phase of its local training.

        Every phase is shortened by the same factor, and rounded up: a client that did only the
        first phases would send no change of what the others train.

        Returns:
            An int32 scalar for each phase.
        """
        counts = []
        for phase in phases:
            count = tf.cast(steps_per_epoch * phase.epochs, tf.int64)
            count = _ceil_div(count * self.epochs, self.local_epochs)
            counts.append(tf.cast(_ceil_div(count * self.parts, _PARTS), tf.int32))
        return counts


def _key(seed: Any, number: int) -> tf.Tensor:
    """The seed of one of a client's draws."""
    return tf.random.experimental.stateless_fold_in(seed, _DRAWS + number)


def _ceil_div(dividend: tf.Tensor, divisor: int) -> tf.Tensor:
    return (dividend + divisor - 1) // divisor
