"""Differences between methods, and how certain they are.

One rule for all: the units are runs with different seeds within one federation, and federations
where there are several. A method's gain over another one is the mean of the differences by unit,
with Student's 95 % interval. It counts if the interval leaves 0 out.

Who leads is known only after all methods have been compared, and the largest of many differences is
large by chance. Therefore, the intervals of the differences of all methods to the same one hold
together with 95 %, by Bonferroni's inequality, which needs no equal variances: each of n leaves out
5 %/n. Each accuracy is a question of its own.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from scipy import special

from tff_pcdd import tables, text

# The level of confidence of intervals, of those of all methods together.
CONFIDENCE = 0.95


# Of one federation.
BySeed = Mapping[str, float]


class Gain(NamedTuple):
    """By how much one method is better than another, in percentage points.

    Attributes:
        mean: the mean difference.
        half: half of the width of its interval; None with a single unit.
        units: the number of differences.
    """

    mean: float
    half: float | None
    units: int

    @property
    def is_certain(self) -> bool:
        """Whether the interval leaves 0 out."""
        return self.half is not None and abs(self.mean) > self.half

    def is_more_than(self, sample: float) -> bool:
        """Whether it is certain, and not the same difference of one test sample in each unit.

        Args:
            sample: the points that one test sample changes; 0 if unknown.

        Example:
            >>> Gain(0.5, 0.0, 3).is_more_than(0.5), Gain(1.0, 0.0, 3).is_more_than(0.5)
            (False, True)
        """
        return self.is_certain and not self._is_one(sample)

    def _is_one(self, sample: float) -> bool:
        is_equal = self.half is not None and tables.is_equal(self.half, 0.0)
        return is_equal and (abs(self.mean) < sample or tables.is_equal(abs(self.mean), sample))

    @property
    def shown(self) -> str:
        """The gain with its interval.

        Example:
            >>> Gain(8.94, 10.0, 3).shown, Gain(-2.0, None, 1).shown
            ('+8.9 (95 % interval −1.1 to +18.9)', '−2.0 (a single difference)')
            >>> Gain(50.0, 61.4, 3).shown  # No two accuracies differ by more than 100 points.
            '+50.0 (95 % interval −11.4 to +100.0)'
            >>> Gain(3.0, 0.0, 3).shown
            '+3.0 (3 equal differences, which give no interval)'
        """
        return f"{text.signed(self.mean)} ({self._interval(0.0)})"

    def over(self, other: str, sample: float = 0.0) -> str:
        """The gain over another method, in words.

        Args:
            other: the other method.
            sample: as for `is_more_than`.

        Example:
            >>> Gain(3.0, None, 1).over("fedavg"), Gain(0.0, 0.0, 2).over("fedavg")
            ('+3.0 (a single difference) over fedavg', 'equal to fedavg')
            >>> Gain(0.02, 0.3, 3).over("fedavg")
            'within 0.05 points of fedavg (95 % interval −0.3 to +0.3)'
            >>> Gain(0.5, 0.0, 2).over("fedavg", sample=0.5)
            '+0.5 (2 equal differences of one test sample) over fedavg'
        """
        if tables.is_equal(self.mean, 0.0) and tables.is_equal(self.half or 0.0, 0.0):
            return f"equal to {other}"
        interval = self._interval(sample)
        if text.signed(self.mean) == "0.0":
            return f"within 0.05 points of {other} ({interval})"
        return f"{text.signed(self.mean)} ({interval}) over {other}"

    def beside(self, upper: str, sample: float = 0.0) -> str:
        """As `over`, for a method that is expected to be better: a loss is said without its sign.

        Example:
            >>> Gain(-3.1, 4.0, 3).beside("central")
            '3.1 points below central (95 % interval −7.1 to +0.9)'
            >>> Gain(-3.1, None, 1).beside("central")
            '3.1 points below central (a single difference)'
            >>> Gain(2.0, 1.0, 3).beside("central")
            '+2.0 (95 % interval +1.0 to +3.0) over central'
        """
        if self.mean > 0 or text.signed(self.mean) == "0.0":
            return self.over(upper, sample)
        return f"{text.percent(-self.mean)} points below {upper} ({self._interval(sample)})"

    def _interval(self, sample: float) -> str:
        if self.half is None:
            return "a single difference"
        if self._is_one(sample):
            return f"{self.units} equal differences of one test sample"
        if tables.is_equal(self.half, 0.0):
            return f"{self.units} equal differences, which give no interval"
        ends = (self.mean - self.half, self.mean + self.half)
        low, high = (text.signed(min(100.0, max(-100.0, end))) for end in ends)
        return f"{100 * CONFIDENCE:.0f} % interval {low} to {high}"


def gain(differences: Sequence[float], among: int = 1) -> Gain | None:
    """The mean of differences with its interval; None without any.

    Args:
        differences: one for each unit, in percentage points.
        among: the number of intervals that hold together, of which this is one.

    Example:
        >>> gain([1.0, 2.0, 3.0]).is_certain, gain([4.0, 5.0, 6.0]).is_certain
        (False, True)
        >>> gain([4.0, 5.0, 6.0], among=10).is_certain
        False
    """
    number = len(differences)
    if not number:
        return None
    half = None
    if number > 1:
        outside = (1 - CONFIDENCE) / max(among, 1)
        quantile = float(special.stdtrit(number - 1, 1 - outside / 2))
        half = quantile * statistics.stdev(differences) / math.sqrt(number)
    return Gain(statistics.fmean(differences), half, number)


def gain_over(own: Sequence[BySeed], others: Sequence[BySeed], among: int = 1) -> Gain | None:
    """The gain of one accuracy over another, by the seeds of each federation that both have.

    Args:
        own, others: for each federation, the values by seed.
        among: as for `gain`.
    """
    pairs = zip(own, others, strict=True)
    return gain(units([tables.differences(*pair) for pair in pairs]), among)


def is_ahead(gained: Gain | None, sample: float) -> bool:
    """Whether a gain is known, and one for certain; `sample` as for `Gain.is_more_than`."""
    return gained is not None and gained.mean > 0 and gained.is_more_than(sample)


def units(groups: Sequence[Sequence[float]]) -> list[float]:
    """What counts as independent: the means of federations; of a single one, its seeds.

    Args:
        groups: for each federation, a value or difference for each seed.

    Example:
        >>> units([[1.0, 2.0]]), units([[1.0, 2.0], [], [5.0]])
        ([1.0, 2.0], [1.5, 5.0])
    """
    if len(groups) == 1:
        return list(groups[0])
    return [statistics.fmean(group) for group in groups if group]
