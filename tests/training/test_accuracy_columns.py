"""From counts to the columns of metrics.csv, against NumPy."""

import numpy as np
import pytest

from tff_pcdd.evaluation import metrics
from tff_pcdd.experiment import accuracy_columns
from tff_pcdd.experiment.accuracy_columns import Groups
from tff_pcdd.training import ExperimentConfig

PARTS = ("many", "medium", "few")


@pytest.fixture(scope="module")
def tailed():
    """Digits with a long tail, of which clients hold unlike shares."""
    config = ExperimentConfig.from_settings(
        num_clients=5, imbalance_factor=10.0, partition="dirichlet", concentration=0.5
    )
    return config.data.build()


def test_personal_groups_of_classes_are_the_clients_own(tailed):
    """Each client's classes are sorted by how many samples it has of them."""
    generator = np.random.default_rng(0)
    total = np.stack([np.bincount(tailed.client_examples(k)[1].y, minlength=10) for k in range(5)])
    counts = {
        key: generator.integers(0, total + 1)
        for key in ("after", "before", "after_masked", "before_masked")
    }
    expected = {name: [] for name in PARTS}
    for k, own in enumerate(tailed.class_counts()):
        order = np.argsort(-own, kind="stable")
        ahead = (np.cumsum(own[order]) - own[order]) / own.sum()
        for name, low, high in (("many", 0, 0.75), ("medium", 0.75, 0.95), ("few", 0.95, 2)):
            classes = order[(ahead >= low) & (ahead < high)]
            if total[k, classes].sum():
                share = counts["after"][k, classes].sum() / total[k, classes].sum()
                expected[name].append(100 * share)
    assert len(expected["few"]) < len(expected["many"]) == len(total)
    groups = Groups.of(tailed.class_counts())
    results = accuracy_columns.personal_accuracies({"total": total, **counts}, groups)
    for name, values in expected.items():
        assert results[f"pa_{name}"] == pytest.approx(np.mean(values))
        assert results[f"pa_before_{name}"] != results[f"pa_{name}"]
    assert set(results) <= set(accuracy_columns.columns(["head"], groups, (), validation=False))


def test_classes_of_similar_size_are_not_grouped():
    for counts, grouped in (
        ([[10, 10], [5, 9]], False),
        ([[10, 10], [0, 10]], True),
        ([[1, 0], [0, 0]], False),
        ([[2, 0], [0, 0]], True),
    ):
        groups = Groups.of(np.array(counts))
        assert (bool(groups.federation), bool(groups.clients)) == (grouped, grouped)


def test_held_out_accuracies_against_numpy():
    """Classes of which nothing was held out are left out of the mean over classes."""
    total, correct = np.array([8, 2, 0, 1]), np.array([8, 1, 0, 0])
    found = accuracy_columns.held_out_accuracies(total, correct)
    assert found == {"va": pytest.approx(900 / 11), "va_balanced": pytest.approx(50.0)}
    nothing = accuracy_columns.held_out_accuracies(0 * total, 0 * total)
    assert all(np.isnan(value) for value in nothing.values())


def test_metrics_against_numpy():
    """Classes without samples, and clients without any, are left out."""
    total = np.array([[4, 0, 10], [5, 5, 0], [0, 0, 0]])
    after = np.array([[1, 0, 10], [4, 3, 0], [0, 0, 0]])
    before = np.array([[0, 0, 5], [5, 5, 0], [0, 0, 0]])
    chosen = [metrics.create(name) for name in ("balanced", "macro_f1", "worst_class")]
    none = Groups({}, {})
    counts = {
        "total": total,
        "after": after,
        "before": before,
        "after_masked": after,
        "before_masked": before,
        # The second client answers class 2 once, which it does not have.
        "after_answers": np.array([[1, 3, 10], [4, 5, 1], [0, 0, 0]]),
        "before_answers": np.array([[9, 0, 5], [5, 5, 0], [0, 0, 0]]),
    }
    personal = accuracy_columns.personal_accuracies(counts, none, chosen)
    by_class = {
        "pa": [[1 / 4, 10 / 10], [4 / 5, 3 / 5]],
        "pa_before": [[0 / 4, 5 / 10], [5 / 5, 5 / 5]],
    }
    for column, shares in by_class.items():
        balanced = 100 * np.mean([np.mean(own) for own in shares])
        worst = 100 * np.mean([np.min(own) for own in shares])
        assert personal[f"balanced_{column}"] == pytest.approx(balanced)
        assert personal[f"worst_class_{column}"] == pytest.approx(worst)
    f1 = np.mean([2 * 1 / 5, 0, 2 * 10 / 20]), np.mean([2 * 4 / 9, 2 * 3 / 10, 0])
    assert personal["macro_f1_pa"] == pytest.approx(100 * np.mean(f1))
    f1 = np.mean([0, 2 * 5 / 15]), 1
    assert personal["macro_f1_pa_before"] == pytest.approx(100 * np.mean(f1))
    heads = {"head": after.sum(axis=0), "other": before.sum(axis=0)}
    answers = counts["after_answers"].sum(axis=0)
    of_global = accuracy_columns.global_accuracies(total.sum(axis=0), heads, answers, none, chosen)
    assert of_global["ga"] == pytest.approx(100 * 18 / 24)
    assert of_global["ga_other"] == pytest.approx(100 * 15 / 24)
    assert of_global["balanced_ga"] == pytest.approx(100 * np.mean([5 / 9, 3 / 5, 10 / 10]))
    assert of_global["worst_class_ga"] == pytest.approx(100 * 5 / 9)
    f1 = np.mean([2 * 5 / 14, 2 * 3 / 13, 2 * 10 / 21])
    assert of_global["macro_f1_ga"] == pytest.approx(100 * f1)
    columns = accuracy_columns.columns(["head", "other"], none, chosen, validation=False)
    assert set(of_global) | set(personal) == set(columns)
    assert columns[-9:] == [
        f"{metric}_{column}"
        for metric in ("balanced", "macro_f1", "worst_class")
        for column in ("ga", "pa", "pa_before")
    ]


def test_a_metric_without_samples_is_nan():
    nothing = np.zeros([2, 3], int)
    names = ["total", *accuracy_columns.PERSONAL_COLUMNS, "before_answers", "after_answers"]
    counts = dict.fromkeys(names, nothing)
    results = accuracy_columns.personal_accuracies(
        counts, Groups({}, {}), [metrics.create("worst_class")]
    )
    assert np.isnan(results["worst_class_pa"])
    assert np.isnan(results["pa"])
