"""Accuracies from counts, against NumPy on single samples."""

import math

import numpy as np
import pytest

from tff_pcdd import evaluation

CLIENTS, CLASSES = 4, 5


@pytest.fixture(scope="module")
def samples():
    """Client, class and hit of every sample; client 3 and class 4 have none."""
    generator = np.random.default_rng(0)
    client = generator.integers(0, CLIENTS - 1, 200)
    label = generator.integers(0, CLASSES - 1, 200)
    return client, label, generator.random(200) < 0.6


@pytest.fixture(scope="module")
def counts(samples):
    client, label, hit = samples
    correct, total = np.zeros((2, CLIENTS, CLASSES), np.int32)
    np.add.at(total, (client, label), 1)
    np.add.at(correct, (client[hit], label[hit]), 1)
    return correct, total


def test_accuracy(samples, counts):
    correct, total = counts
    actual = evaluation.accuracy(correct.sum(axis=0), total.sum(axis=0))
    assert actual == pytest.approx(100 * samples[2].mean())
    assert isinstance(actual, float)
    assert math.isnan(evaluation.accuracy(np.zeros(3), np.zeros(3)))


def test_balanced_accuracy_leaves_empty_classes_out(samples, counts):
    _, label, hit = samples
    expected = 100 * np.mean([hit[label == c].mean() for c in range(CLASSES - 1)])
    actual = evaluation.balanced_accuracy(*(part.sum(axis=0) for part in counts))
    assert actual == pytest.approx(expected)
    assert math.isnan(evaluation.balanced_accuracy(np.zeros(3), np.zeros(3)))


def test_group_accuracy(samples, counts):
    """A group without classes, and one whose classes have no samples, are not numbers."""
    _, label, hit = samples
    groups = {"many": [0, 2], "medium": np.array([1, 3, 4]), "few": [4], "none": ()}
    actual = evaluation.group_accuracy(*(part.sum(axis=0) for part in counts), groups)
    assert list(actual) == list(groups)
    assert actual["many"] == pytest.approx(100 * hit[np.isin(label, [0, 2])].mean())
    assert actual["medium"] == pytest.approx(100 * hit[np.isin(label, [1, 3])].mean())
    assert math.isnan(actual["few"])
    assert math.isnan(actual["none"])
    assert evaluation.group_accuracy(np.ones(2), np.ones(2), {}) == {}


def test_personal_accuracy_is_the_plain_mean_over_tested_clients(samples, counts):
    client, _, hit = samples
    expected = 100 * np.mean([hit[client == k].mean() for k in range(CLIENTS - 1)])
    assert evaluation.personal_accuracy(*counts) == pytest.approx(expected)
    assert expected != pytest.approx(100 * hit.mean(), abs=1e-3)
    assert math.isnan(evaluation.personal_accuracy(np.zeros((2, 3)), np.zeros((2, 3))))


def test_personal_group_accuracy_is_the_mean_over_clients_that_have_the_group(samples, counts):
    """The groups differ; client 1 has no few classes, and client 3 no samples at all."""
    client, label, hit = samples
    groups = [
        {"many": [0], "few": [1, 2]},
        {"many": [0, 1, 2, 3], "few": [4]},
        {"many": [3, 1], "few": [0]},
        {"many": [0], "few": [1]},
    ]
    values = {
        name: [
            100 * hit[(client == k) & np.isin(label, own[name])].mean()
            for k, own in enumerate(groups[:3])
            if own[name] != [4]
        ]
        for name in ("many", "few")
    }
    assert [len(column) for column in values.values()] == [3, 2]
    masks = {
        name: np.array([np.isin(np.arange(CLASSES), own[name]) for own in groups])
        for name in ("many", "few")
    }
    actual = evaluation.personal_group_accuracy(*counts, masks)
    assert actual == pytest.approx({name: np.mean(column) for name, column in values.items()})
    last = {name: mask[3:] for name, mask in masks.items()}
    empty = evaluation.personal_group_accuracy(*(part[3:] for part in counts), last)
    assert math.isnan(empty["many"]) and math.isnan(empty["few"])


@pytest.mark.parametrize(
    ("own", "other", "samples"),
    [(80.0, 60.0, 100), (100.0, 90.0, 20), (0.0, 0.0, 5), (55, 95, 359)],
)
def test_the_interval_of_a_difference_is_newcombes(own, other, samples):
    """Wilson's bounds solve (p - share)² = z² share (1 - share) / n; here as polynomials."""
    z = 1.959964

    def wilson(percent):
        p = percent / 100
        roots = np.roots([1 + z * z / samples, -(2 * p + z * z / samples), p * p])
        return sorted(np.real(roots))

    (low_own, high_own), (low, high) = wilson(own), wilson(other)
    below = np.hypot(own / 100 - low_own, high - other / 100)
    above = np.hypot(high_own - own / 100, other / 100 - low)
    difference = own - other
    np.testing.assert_allclose(
        evaluation.accuracy_interval(own, other, samples),
        (difference - 100 * below, difference + 100 * above),
        atol=1e-5,
    )


@pytest.mark.parametrize(("accuracy", "samples"), [(80.0, 100), (100.0, 20), (0.0, 1), (55, 359)])
def test_the_interval_of_an_accuracy_is_wilsons(accuracy, samples):
    """Its bounds solve (p - share)² = z² share (1 - share) / n."""
    z, p = 1.959964, accuracy / 100
    roots = np.real(np.roots([1 + z * z / samples, -(2 * p + z * z / samples), p * p]))
    bounds = evaluation.accuracy_bounds(accuracy, samples)
    np.testing.assert_allclose(bounds, 100 * np.sort(roots), atol=1e-5)
