"""Ranks and tests, against critical values of Demšar (JMLR 7, 2006) and short computations."""

import itertools
import math

import numpy as np
import pytest

from tff_pcdd.results import ranks

VALUES = np.array(
    [
        [90.0, 80.0, 70.0, 60.0],
        [50.0, 55.0, 55.0, 40.0],
        [71.0, 70.0, 69.0, 70.0],
        [30.0, 40.0, 20.0, 10.0],
        [99.0, 98.0, 98.0, 98.0],
    ]
)
RANKS = [[1, 2, 3, 4], [3, 1.5, 1.5, 4], [1, 2.5, 4, 2.5], [2, 1, 3, 4], [1, 3, 3, 3]]


def test_the_highest_value_has_the_first_rank():
    assert ranks.ranks(VALUES).tolist() == RANKS


def test_friedman():
    """The formula of section 3.2.2, corrected for ties like in any text book."""
    federations, methods = VALUES.shape
    average = np.mean(RANKS, axis=0)
    statistic = 12 * federations / (methods * (methods + 1))
    statistic *= np.sum(average**2) - methods * (methods + 1) ** 2 / 4
    # Two pairs and three of a kind.
    ties = (2**3 - 2) + (2**3 - 2) + (3**3 - 3)
    statistic /= 1 - ties / (federations * (methods**3 - methods))
    found = ranks.friedman(VALUES)
    assert found.statistic == pytest.approx(statistic)
    # χ² with three degrees of freedom.
    x = statistic
    tail = math.erfc(math.sqrt(x / 2)) + math.sqrt(2 * x / math.pi) * math.exp(-x / 2)
    assert found.p == pytest.approx(tail)


@pytest.mark.parametrize(
    ("methods", "quantile"), [(2, 1.960), (3, 2.343), (4, 2.569), (5, 2.728), (10, 3.164)]
)
def test_the_critical_values_of_the_article(methods, quantile):
    expected = quantile * math.sqrt(methods * (methods + 1) / (6 * 14))
    assert ranks.critical_difference(methods, 14) == pytest.approx(expected, abs=1e-3)


@pytest.mark.parametrize(
    ("differences", "magnitudes"),
    [
        ([3.0, 1.0, 7.0, -2.0, 5.0, 4.0], [3, 1, 6, 2, 5, 4]),
        # Ties share their mean rank, also if rounding errors separate them; 0 has none.
        ([0.3, 0.0, 0.1 + 0.2, -0.1, 0.5, 0.5, 0.5], [2.5, 0, 2.5, 1, 5, 5, 5]),
        ([1.0, -1.0, 1.0, 1.0, -2.0, 3.0], [2.5, 2.5, 2.5, 2.5, 5, 6]),
    ],
)
def test_the_signed_rank_test_counts_signs(differences, magnitudes):
    """Exact: twice the share of all signs with a sum of ranks at least as extreme."""
    every = itertools.product((0, 1), repeat=len(magnitudes))
    sums = [np.dot(signs, magnitudes) for signs in every]
    own = np.dot(np.greater(differences, 0), magnitudes)
    tail = np.mean([total >= own for total in sums])
    assert ranks.signed_rank(differences) == pytest.approx(2 * tail)
    assert ranks.signed_rank(np.negative(differences)) == pytest.approx(2 * tail)


@pytest.mark.parametrize("form", [".4f", ".9g"])
def test_digits_that_files_leave_out_do_not_separate_equal_values(form):
    """Counts of correct answers to 360 questions, and what tables hold of them in percent."""
    generator = np.random.default_rng(0)
    counts = generator.integers(300, 320, (21, 2))
    written = np.array([[float(f"{100 * count / 360:{form}}") for count in row] for row in counts])
    exact = ranks.signed_rank((counts[:, 0] - counts[:, 1]).astype(float))
    assert ranks.signed_rank(written[:, 0] - written[:, 1]) == exact
    means = np.array([[[300, 301, 305], [302, 302, 302], [310, 300, 290]]])
    tables = np.vectorize(lambda count: float(f"{100 * count / 360:{form}}"))(means).mean(axis=2)
    assert ranks.ranks(tables).tolist() == [[1.5, 1.5, 3]]


def test_equal_values_do_not_differ():
    assert ranks.signed_rank([0.0, 0.0]) == ranks.signed_rank([]) == 1.0
    assert ranks.signed_rank([1.0, -1.0]) == 1.0


def test_holm_is_never_below_the_step_before():
    adjusted = ranks.holm({"a": 0.04, "b": 0.001, "c": 0.03, "d": 0.9})
    assert adjusted == pytest.approx({"b": 0.004, "c": 0.09, "a": 0.09, "d": 0.9})


@pytest.mark.parametrize("values", [[[1.0, 2.0, 3.0]], [[1.0, 2.0]] * 3, [[1.0, 1.0, 1.0]] * 3])
def test_where_the_ranks_cannot_be_tested(values):
    assert ranks.friedman(np.array(values)) is None
