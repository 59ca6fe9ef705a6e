"""Ranks and tests, against figures of Demšar (JMLR 7, 2006) and short computations."""

import itertools
import math

import numpy as np
import pytest

from tff_pcdd.report import ranks

# Demšar, table 6: AUC of C4.5 and three variants on 14 data sets; his section 3.2.2 tests them.
AUC = np.array(
    [
        [0.763, 0.768, 0.771, 0.798],
        [0.599, 0.591, 0.590, 0.569],
        [0.954, 0.971, 0.968, 0.967],
        [0.628, 0.661, 0.654, 0.657],
        [0.882, 0.888, 0.886, 0.898],
        [0.936, 0.931, 0.916, 0.931],
        [0.661, 0.668, 0.609, 0.685],
        [0.583, 0.583, 0.563, 0.625],
        [0.775, 0.838, 0.866, 0.875],
        [1.000, 1.000, 1.000, 1.000],
        [0.940, 0.962, 0.965, 0.962],
        [0.619, 0.666, 0.614, 0.669],
        [0.972, 0.981, 0.975, 0.975],
        [0.957, 0.978, 0.946, 0.970],
    ]
)


def test_the_example_of_the_article():
    average = ranks.ranks(AUC).mean(axis=0)
    assert np.round(average, 3).tolist() == [3.143, 2.0, 2.893, 1.964]
    # The article's statistic, 9.28, has no correction for ties.
    sums = 12 * 14 / (4 * 5) * (np.sum(average**2) - 4 * 5**2 / 4)
    assert round(sums, 2) == 9.28
    blocks = ranks.ranks(AUC)
    ties = sum(
        count**3 - count for row in blocks for count in np.unique(row, return_counts=True)[1]
    )
    found = ranks.friedman(AUC)
    assert found.statistic == pytest.approx(sums / (1 - ties / (14 * (4**3 - 4))))
    assert 0.01 < found.p < 0.03


@pytest.mark.parametrize(
    ("methods", "quantile"), [(2, 1.960), (3, 2.343), (4, 2.569), (5, 2.728), (10, 3.164)]
)
def test_the_critical_values_of_the_article(methods, quantile):
    expected = quantile * math.sqrt(methods * (methods + 1) / (6 * 14))
    assert ranks.critical_difference(methods, 14) == pytest.approx(expected, abs=1e-3)


def test_the_signed_rank_test_counts_signs():
    """Exact for few pairs: the share of all signs with a sum of ranks at least as extreme."""
    differences = [3.0, 1.0, 7.0, -2.0, 5.0, 4.0]
    magnitudes = np.argsort(np.argsort(np.abs(differences))) + 1
    sums = [
        sum(rank for rank, sign in zip(magnitudes, signs, strict=True) if sign)
        for signs in itertools.product((0, 1), repeat=6)
    ]
    own = sum(rank for rank, d in zip(magnitudes, differences, strict=True) if d > 0)
    tail = np.mean([total >= own for total in sums])
    assert ranks.signed_rank(differences) == pytest.approx(2 * tail)
    assert ranks.signed_rank([0.0, 0.0]) == 1.0


def test_holm_is_never_below_the_step_before():
    adjusted = ranks.holm({"a": 0.04, "b": 0.001, "c": 0.03, "d": 0.9})
    assert adjusted == pytest.approx({"b": 0.004, "c": 0.09, "a": 0.09, "d": 0.9})


@pytest.mark.parametrize("values", [[[1.0, 2.0, 3.0]], [[1.0, 2.0]] * 3, [[1.0, 1.0, 1.0]] * 3])
def test_where_the_ranks_cannot_be_tested(values):
    assert ranks.friedman(np.array(values)) is None
