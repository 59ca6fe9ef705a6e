"""Long-tailed sizes and groups against FedLoGe's own numbers."""

import numpy as np
import pytest

from tests.data.refusals import refuses
from tff_pcdd import data
from tff_pcdd.data import DataError, long_tail


@pytest.mark.parametrize("inverse", ["0.02", "0.01", "0.1"])
@pytest.mark.parametrize(("classes", "largest"), [(10, 5000), (100, 500)])
def test_counts_are_the_authors(golden, classes, largest, inverse):
    expected = golden("partition_fedloge")[f"lt_counts_C{classes}_IF{inverse}"]
    assert np.array_equal(data.long_tail_counts(largest, 1 / float(inverse), classes), expected)


def test_counts_of_a_balanced_set_and_of_one_class():
    assert data.long_tail_counts(7, 1, 3).tolist() == [7, 7, 7]
    assert data.long_tail_counts(7, 100, 1).tolist() == [7]


def test_of_two_classes_the_second_is_smaller_by_the_factor():
    assert data.long_tail_counts(100, 10, 2).tolist() == [100, 10]


def test_indices_keep_as_many_of_each_class():
    labels = np.random.default_rng(0).permutation(np.repeat(np.arange(10), 200))
    chosen = data.long_tail_indices(labels, 50, seed=1)
    assert np.array_equal(np.bincount(labels[chosen]), data.long_tail_counts(200, 50, 10))
    assert (np.diff(chosen) > 0).all()
    assert np.array_equal(chosen, data.long_tail_indices(labels, 50, seed=1))
    assert not np.array_equal(chosen, data.long_tail_indices(labels, 50, seed=2))


def test_unbalanced_labels_use_the_smallest_class_or_the_given_count():
    labels = np.repeat(np.arange(3), [100, 40, 30])
    assert np.bincount(labels[data.long_tail_indices(labels, 10, 0)]).tolist() == [30, 9, 3]
    wide = data.long_tail_indices(labels, 10, 0, max_count=100)
    assert np.bincount(labels[wide]).tolist() == [100, 31, 10]


@pytest.mark.parametrize("case", range(5))
def test_groups_are_the_authors(golden, case):
    arrays = golden("fedloge_realign_eval")
    groups = data.class_groups(arrays[f"shot_dist_{case}"])
    code = arrays[f"shot_code_{case}"]
    for number, group in enumerate(groups):
        assert group.tolist() == np.flatnonzero(code == number).tolist()


@pytest.mark.parametrize(
    ("classes", "largest", "factor", "sizes"),
    [(10, 5000, 50, (4, 3, 3)), (10, 5000, 100, (3, 3, 4)), (100, 500, 50, (34, 34, 32))],
)
def test_groups_of_the_published_settings(classes, largest, factor, sizes):
    groups = data.class_groups(data.long_tail_counts(largest, factor, classes))
    assert tuple(map(len, groups)) == sizes


@pytest.mark.parametrize(("factor", "sizes"), [(50, (31, 31, 38)), (100, (27, 26, 47))])
def test_groups_by_local_test_samples_are_close_to_the_published(factor, sizes):
    # The published sizes come from the authors' random draw, which only shares the rounding.
    counts = data.long_tail_counts(500, factor, 100)
    labels, tests = np.repeat(np.arange(100), counts), np.repeat(np.arange(100), 100)
    split = data.split_dirichlet(
        labels, tests, 20, 0.5, 0, 0, assignment="sample", local_test="overlapping"
    )
    groups = data.class_groups(np.bincount(tests[np.concatenate(split.test)], minlength=100))
    assert np.abs(np.subtract(tuple(map(len, groups)), sizes)).max() <= 2


def test_each_client_has_groups_of_its_own():
    """By hand: the classes before 75 % of a client's samples, before 95 %, and the others."""
    counts = np.array([[750, 200, 50], [10, 80, 10], [1, 1, 98]])
    groups = long_tail.class_group_masks(counts)
    code = 1 * groups.medium + 2 * groups.few
    assert code.tolist() == [[0, 1, 2], [1, 0, 1], [2, 2, 0]]
    assert all((groups.many ^ groups.medium ^ groups.few).ravel())


def test_groups_of_nothing_are_all_few():
    assert [len(group) for group in data.class_groups([0, 0])] == [0, 0, 2]


@pytest.mark.parametrize(
    ("call", "setting", "reason"),
    [
        (lambda: data.long_tail_counts(0, 10, 10), "max_count", "positive integer"),
        (lambda: data.long_tail_counts(float("nan"), 3, 3), "max_count", "positive integer"),
        (lambda: data.long_tail_counts(10, 10, 0), "num_classes", "positive integer"),
        (lambda: data.long_tail_counts(9, 3, float("inf")), "num_classes", "positive integer"),
        (lambda: data.long_tail_counts(100, 0.01, 10), "imbalance_factor", "at least 1"),
        (lambda: data.long_tail_counts(100, float("nan"), 10), "imbalance_factor", "finite"),
        (lambda: data.long_tail_counts(50, 100, 10), "imbalance_factor", "without .* at most 50"),
        (lambda: data.long_tail_counts(1, 2, 3), "imbalance_factor", "with 1 sample in the first"),
        (
            lambda: data.long_tail_indices([0, 0, 2], 2, 0),
            "imbalance_factor",
            "needs training samples of every class, and class 1 has none",
        ),
        (lambda: data.long_tail_indices([], 2, 0), "imbalance_factor", "every class"),
        (
            lambda: data.long_tail_indices([0] * 5 + [1] * 3, 1, 0, max_count=4),
            "max_count",
            "class 1 would need 4 samples but has 3",
        ),
    ],
)
def test_refused_settings(call, setting, reason):
    with refuses(setting, reason):
        call()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: data.class_groups([1, -1]), "non-negative"),
        (lambda: data.class_groups([[1], [1]]), "one non-negative number per class"),
    ],
)
def test_refused_labels_and_counts(call, message):
    with pytest.raises(DataError, match=message):
        call()
