"""The base class of schedules, and their registry."""

from __future__ import annotations

import dataclasses

from etils import epy

from tff_pcdd.registry import Component, Registry
from tff_pcdd.settings import option
from tff_pcdd.text import plural

with epy.lazy_imports():
    import tensorflow as tf


@dataclasses.dataclass(frozen=True)
class Schedule(Component):
    """The factor of the clients' step size in each round; subclasses implement `_factor`.

    A factor is a pure function of the round's number, computed in the graph, so that one traced
    computation serves all rounds. In the first `warmup_rounds` rounds, W of them, the factor of
    round t = 0, 1, … is multiplied by (t + 1)/(W + 1), so that round W is the first one with the
    whole factor.
    """

    _: dataclasses.KW_ONLY
    warmup_rounds: int = option(
        0,
        "Rounds in which the clients' step size rises linearly to that of the schedule.",
        minimum=0,
        setting="warmup_rounds",
    )

    @classmethod
    def prefix(cls) -> str:
        return "schedule_"

    @property
    def needs_rounds(self) -> bool:
        """Whether factors depend on the planned number of rounds, as for `Method.has_schedule`."""
        return False

    def check_rounds(self, num_rounds: int) -> None:
        """Refuses planned numbers of rounds with which the schedule makes no sense; none here."""

    def advice(self, num_rounds: int) -> list[str]:
        """Warnings of settings whose effect begins after the last planned round."""
        if self.warmup_rounds < num_rounds:
            return []
        return [
            f"warmup_rounds={self.warmup_rounds}: the whole step size is not reached in "
            f"{plural(num_rounds, 'round')}"
        ]

    def factor(self, round_number: tf.Tensor, num_rounds: int | None) -> tf.Tensor | None:
        """The factor of the step size in a round.

        Args:
            round_number: t, int32 scalar, 0 for the first round.
            num_rounds: planned rounds, if `needs_rounds`.

        Returns:
            float32 scalar; None if the step size is the same in all rounds.
        """
        number = tf.cast(round_number, tf.float32)
        factor = self._factor(number, num_rounds)
        if self.warmup_rounds:
            warm = tf.minimum(1.0, (number + 1) / (self.warmup_rounds + 1))
            factor = warm if factor is None else factor * warm
        return factor

    def _factor(self, number: tf.Tensor, num_rounds: int | None) -> tf.Tensor | None:
        """The factor without warm-up; `number` is t as float32. None if it is always 1."""
        raise NotImplementedError


registry: Registry[Schedule] = Registry("schedule", "tff_pcdd.federated.schedules")
register = registry.register
