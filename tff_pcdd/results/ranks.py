"""Ranks of methods over several federations, and tests of whether they differ.

Statistical Comparisons of Classifiers over Multiple Data Sets; J. Demšar; Journal of Machine
Learning Research 7, 2006. Section numbers refer to this article.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from scipy import stats

# The level of significance of all tests.
LEVEL = 0.05

# Accuracies in % are published with four digits after the point, so a difference of two of them is
# uncertain by 1e-4. Values that are closer than the uncertainty of both are equal ones.
_RESOLUTION = 2.5e-4


class Friedman(NamedTuple):
    """The test of whether all methods have the same average rank.

    Attributes:
        statistic: χ², corrected for ties.
        p: its probability if they have.
    """

    statistic: float
    p: float


class Probability(NamedTuple):
    """The p-value of one of several tests.

    Attributes:
        p: of the test alone.
        adjusted: for the number of tests, by `holm`.
    """

    p: float
    adjusted: float


def ranks(values: np.ndarray) -> np.ndarray:
    """The ranks of the methods on each federation: 1 for the highest value; ties share the mean.

    Args:
        values: [federations, methods].

    Example:
        >>> ranks(np.array([[80.0, 90.0, 80.0]])).tolist()
        [[2.5, 1.0, 2.5]]
    """
    return np.apply_along_axis(lambda row: stats.rankdata(-_merged(row)), 1, values)


def shown(average: float) -> str:
    """An average rank with one digit after the point, or two where one would not be exact.

    Example:
        >>> shown(2.0), shown(2.25), shown(2.125), shown(7 / 3)
        ('2.0', '2.25', '2.13', '2.33')
    """
    # Not half to even, by which 2.125 would be 2.12.
    return f"{math.floor(100 * average + 0.5) / 100:.2f}".removesuffix("0")


def _merged(values: np.ndarray) -> np.ndarray:
    """Values [n], of which those that only rounding separates are made equal."""
    order = np.argsort(values)
    groups = np.cumsum(np.diff(values[order], prepend=values[order[0]]) > _RESOLUTION)
    means = np.bincount(groups, values[order]) / np.bincount(groups)
    return means[groups[np.argsort(order)]]


def friedman(values: np.ndarray) -> Friedman | None:
    """Friedman's test of the ranks (section 3.2.2), with federations as blocks.

    Args:
        values: [federations, methods].

    Returns:
        None with fewer than two federations or three methods, or if all ranks are equal.
    """
    federations, methods = values.shape
    placed = ranks(values)
    if federations < 2 or methods < 3 or np.all(placed == placed[0, 0]):
        return None
    # The test ranks once more, which does not change ranks.
    return Friedman(*map(float, stats.friedmanchisquare(*placed.T)))


def critical_difference(methods: int, federations: int) -> float:
    """The least difference of average ranks that is significant by Nemenyi's test (section 3.2.2).

    Example:
        >>> round(critical_difference(10, 7), 2)
        5.12
    """
    quantile = stats.studentized_range.ppf(1 - LEVEL, methods, math.inf) / math.sqrt(2)
    return float(quantile * math.sqrt(methods * (methods + 1) / (6 * federations)))


def signed_rank(differences: Sequence[float]) -> float:
    """The p-value of Wilcoxon's signed-rank test (section 3.1.3), two-sided and exact.

    Ties share their mean rank. SciPy's exact test assumes that there are none.

    Args:
        differences: of paired values; those that are 0 are left out.
    """
    unequal = np.array([d for d in differences if abs(d) > _RESOLUTION])
    if not len(unequal):
        return 1.0
    # Doubled, so that mean ranks are integers as well.
    doubled = np.rint(2 * stats.rankdata(_merged(np.abs(unequal)))).astype(int)
    # The probability of each sum of the ranks with a positive sign, if both signs are as likely.
    probabilities = np.ones(1)
    for rank in doubled:
        none = np.zeros(rank)
        either = np.append(probabilities, none) + np.append(none, probabilities)
        probabilities = either / 2
    own = doubled[unequal > 0].sum()
    tails = probabilities[: own + 1].sum(), probabilities[own:].sum()
    return float(min(1.0, 2 * min(tails)))


def least_pairs(tests: int) -> int:
    """The least number of pairs with which `signed_rank` of one of several tests can reach `LEVEL`.

    Its smallest p-value is that of differences with the same sign, 2·0.5ⁿ; `holm` multiplies it by
    the number of tests.

    Example:
        >>> least_pairs(1), least_pairs(30)
        (6, 11)
    """
    return math.floor(1 + math.log2(tests / LEVEL)) + 1


def intraclass_correlation(groups: Sequence[Sequence[float]]) -> float:
    """How alike the values of a group are: their correlation, ICC(1), by analysis of variance.

    With 1, further values of a group say nothing new; with 0, all values are independent. Values
    below 0 are estimates of 0.

    Intraclass Correlations: Uses in Assessing Rater Reliability; P. E. Shrout, J. L. Fleiss;
    Psychological Bulletin 86, 1979.

    Args:
        groups: values of each group; those of fewer than two values are left out.

    Returns:
        NaN with fewer than two groups, or if all values are equal.
    """
    kept = [np.asarray(group, float) for group in groups if len(group) > 1]
    if len(kept) < 2:
        return math.nan
    sizes = np.array([len(group) for group in kept])
    means = np.array([group.mean() for group in kept])
    total = np.concatenate(kept)
    between = np.sum(sizes * (means - total.mean()) ** 2) / (len(kept) - 1)
    inside = sum(np.sum((group - group.mean()) ** 2) for group in kept) / (len(total) - len(kept))
    size = (len(total) - np.sum(sizes**2) / len(total)) / (len(kept) - 1)
    spread = between + (size - 1) * inside
    return float((between - inside) / spread) if spread else math.nan


def same(one: Sequence[float], other: Sequence[float]) -> bool:
    """Whether values differ by rounding only."""
    return len(one) == len(other) and bool(np.all(np.abs(np.subtract(one, other)) <= _RESOLUTION))


def holm(p_values: Mapping[str, float]) -> dict[str, float]:
    """Adjusts p-values for the number of tests by Holm's step-down procedure (section 3.2.2).

    Example:
        >>> holm({"a": 0.01, "b": 0.04, "c": 0.03})
        {'a': 0.03, 'c': 0.06, 'b': 0.06}
    """
    ordered = sorted(p_values, key=lambda name: p_values[name])
    scaled = [min(1.0, (len(ordered) - i) * p_values[name]) for i, name in enumerate(ordered)]
    return dict(zip(ordered, itertools.accumulate(scaled, max), strict=True))
