"""A step size that drops after given rounds."""

import dataclasses
import math

from etils import epy

from tff_pcdd.errors import SettingError
from tff_pcdd.federated.schedules.schedule import Schedule, register
from tff_pcdd.settings import option, split_names

with epy.lazy_imports():
    import tensorflow as tf


@register
@dataclasses.dataclass(frozen=True)
class Step(Schedule):
    """drop^m after m of the given rounds, as in the experiments of FedBABU.

    Raises:
        SettingError: a setting is out of bounds, or the rounds are not positive ascending numbers.
    """

    name = "step"

    milestones: str = option(
        "0.5,0.75",
        "Rounds after which the step size drops, separated by commas, ascending. Numbers below 1 "
        "are shares of the planned rounds.",
    )
    drop: float = option(
        0.1, "Factor of the step size at each of these rounds.", above=0, maximum=1
    )

    def __post_init__(self):
        super().__post_init__()
        self._read()

    def _read(self) -> list[float]:
        """The numbers in `milestones`."""
        try:
            numbers = [float(text) for text in split_names(self.milestones)]
        except ValueError:
            numbers = []
        fine = all(0 < n < math.inf and (n < 1 or n.is_integer()) for n in numbers)
        # Shares and rounds can only be ordered among themselves.
        kinds = [[n for n in numbers if n < 1], [n for n in numbers if n >= 1]]
        if not numbers or not fine or any(sorted(set(kind)) != kind for kind in kinds):
            raise SettingError(
                "schedule_milestones",
                self.milestones,
                "must be ascending whole numbers of rounds, or shares of the planned rounds below "
                "1, separated by commas",
            )
        return numbers

    @property
    def needs_rounds(self):
        return any(number < 1 for number in self._read())

    def _rounds(self, num_rounds: int) -> list[float]:
        """The numbers of rounds after which the step size drops."""
        return [n if n >= 1 else float(round(n * num_rounds)) for n in self._read()]

    def check_rounds(self, num_rounds):
        if not all(self._rounds(num_rounds)):
            raise SettingError(
                "schedule_milestones",
                self.milestones,
                f"a share of rounds={num_rounds} is rounded to no round at all, so that the step "
                "size would be smaller from the start; give more rounds or larger shares",
            )

    def advice(self, num_rounds):
        late = [n for n in self._rounds(num_rounds) if n >= num_rounds]
        if not late:
            return super().advice(num_rounds)
        return [
            *super().advice(num_rounds),
            f"schedule_milestones={self.milestones}: the step size does not drop after round "
            f"{late[0]:g}, because rounds={num_rounds}",
        ]

    def _factor(self, number, num_rounds):
        rounds = self._rounds(num_rounds)
        passed = tf.reduce_sum(tf.cast(number >= tf.constant(rounds), tf.float32))
        return tf.pow(self.drop, passed)
