"""Successive halving: settings that look hopeless on held-out samples are stopped early.

Non-stochastic Best Arm Identification and Hyperparameter Optimization; K. Jamieson, A. Talwalkar;
AISTATS 2016 (algorithm of section 3). All settings train up to the first rung; the best of them,
one of `reduction`, train up to the second, and so on. Unlike in the paper, the rungs are shares of
the planned rounds, and the best of the last rung train until the end.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Sequence

from tff_pcdd.errors import SettingError
from tff_pcdd.training.history import History
from tff_pcdd.training.nonfinite import is_lost


@dataclasses.dataclass(frozen=True)
class Halving:
    """When settings are stopped.

    Attributes:
        rungs: shares of the planned rounds after which settings are stopped, in ascending order;
            without any, all settings train until the end.
        reduction: η; one of so many settings goes on after each rung.

    Raises:
        SettingError: a rung is not between 0 and 1, they do not ascend, or η is not above 1.
    """

    rungs: Sequence[float] = (0.25, 0.5)
    reduction: float = 2.0

    def __post_init__(self):
        ordered = all(low < high for low, high in itertools.pairwise((0, *self.rungs, 1)))
        if not ordered:
            shown = ",".join(f"{share:g}" for share in self.rungs)
            reason = "must be ascending shares of the rounds between 0 and 1, such as 0.25,0.5"
            raise SettingError("rungs", shown, reason)
        if not 1 < self.reduction < math.inf:
            raise SettingError("reduction", self.reduction, "must be a number greater than 1")

    def rounds(self, planned: int) -> list[int]:
        """The rounds after which settings are stopped, for a planned number of rounds.

        Example:
            >>> Halving().rounds(30), Halving().rounds(2)
            ([8, 15], [1])
        """
        rounds = {max(1, math.floor(share * planned + 0.5)) for share in self.rungs}
        return sorted(number for number in rounds if number < planned)

    def kept(self, scores: Sequence[float | None]) -> list[int]:
        """The settings that go on after a rung.

        Args:
            scores: the accuracy of each setting on held-out samples; None if it has diverged.
                Settings with -inf have not been measured yet, so all of them go on.

        Returns:
            Their indices, in ascending order. Of equal settings, the first ones go on.
        """
        usable = [index for index, score in enumerate(scores) if score is not None]
        measured = [index for index in usable if scores[index] != -math.inf]
        number = math.ceil(len(scores) / self.reduction)
        # Sorting is stable.
        ranked = sorted(measured, key=lambda index: -(scores[index] or 0.0))
        return sorted({*ranked[:number], *(i for i in usable if i not in measured)})


def best_held_out(history: History, criterion: str, until: int | None = None) -> tuple[int, float]:
    """The first round with the highest accuracy on held-out samples, and that accuracy in %.

    No accuracy on test data is read.

    Args:
        history: the measurements of a run.
        criterion: the column, such as `va`.
        until: the last round that counts; by default all do.

    Returns:
        The round and the accuracy; 0 and -inf if it was not measured in these rounds.
    """
    best = 0, -math.inf
    for row in history:
        value = row.get(criterion)
        counts = (until is None or row["round"] <= until) and not is_lost(row)
        if counts and value is not None and value > best[1]:
            best = row["round"], value
    return best
