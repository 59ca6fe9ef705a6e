"""Ranks and tests, against critical values of Demšar (JMLR 7, 2006) and short computations."""

import csv
import itertools
import math

import numpy as np
import pytest

from tests.cli.conftest import ROOT
from tests.markdown_tables import table_rows
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


def test_least_pairs_are_those_that_can_reach_the_level():
    for tests in (1, 2, 10, 30):
        enough = ranks.least_pairs(tests)
        assert ranks.signed_rank(range(1, enough + 1)) * tests < ranks.LEVEL
        assert ranks.signed_rank(range(1, enough)) * tests >= ranks.LEVEL


def test_intraclass_correlation_of_shrout_and_fleiss():
    """Table 2 of the article: six targets, four judges; ICC(1, 1) is 0.17."""
    ratings = [[9, 2, 5, 8], [6, 1, 3, 2], [8, 4, 6, 8], [7, 1, 2, 6], [10, 5, 6, 9], [6, 2, 4, 7]]
    assert ranks.intraclass_correlation(ratings) == pytest.approx(0.166, abs=5e-4)
    assert ranks.intraclass_correlation([[1.0, 1.0], [2.0, 2.0]]) == 1
    assert math.isnan(ranks.intraclass_correlation([[1.0, 2.0], [3.0]]))
    assert math.isnan(ranks.intraclass_correlation([[1.0, 1.0], [1.0, 1.0]]))


def test_published_p_values_are_those_of_all_permutations():
    """From the published csv files: all ways to swap a method and FedAvg on a federation."""
    page = (ROOT / "docs/comparison/ranks.md").read_text(encoding="utf-8")
    head, *body = table_rows(page.split("## GA\n\n")[1].split("\n\n")[0])
    found = {}
    folders = ["digits_p10c2", "digits_p5c2", "fashion_p10c2", "fashion_dir0.1", "leaf_digits"]
    for folder in [*folders, "fashion_lt", "cifar10_lt"]:
        with open(ROOT / "docs/comparison" / folder / "final.csv", newline="") as file:
            for row in csv.DictReader(file):
                found[folder, row["algorithm"], row["seed"]] = float(row["ga_final"] or 0)
    folders = list(dict.fromkeys(folder for folder, _, _ in found))

    def p_value(method):
        means = np.array(
            [np.mean([found[f, method, s] - found[f, "fedavg", s] for s in "123"]) for f in folders]
        )
        means = means[np.abs(means) > 1e-3]  # Where both are equal, nothing can be swapped.
        sizes = np.abs(means).round(3)
        places = [1 + (sizes < one).sum() + ((sizes == one).sum() - 1) / 2 for one in sizes]
        swapped = [
            abs(np.dot(signs, places)) for signs in itertools.product([-1, 1], repeat=len(means))
        ]
        return np.mean(np.array(swapped) >= abs(np.dot(np.sign(means), places)) - 1e-9)

    alone = {name: p_value(name) for name in [line[0] for line in body] if name != "fedavg"}
    shown = {line[0]: line[head.index("p (FedAvg)")] for line in body}
    assert len(alone) == len(body) - 1 == 30
    # Holm: the k-th smallest of m p-values times m - k, never below the one before.
    least = 0.0
    for place, name in enumerate(sorted(alone, key=alone.get)):
        least = max(least, min(1, (30 - place) * alone[name]))
        assert shown[name] == f"{alone[name]:.3f}, {least:.3f}", name
