"""Properties of t-SNE maps, and the two quality measures compared with loops over samples."""

import math

import numpy as np
import pytest

from tff_pcdd.diagnostics import tsne


def groups(classes=4, size=20, distance=50.0, dim=8, seed=0):
    """Samples [n, dim] around one point per class, and their labels."""
    generator = np.random.default_rng(seed)
    labels = np.repeat(np.arange(classes), size)
    return distance * np.eye(classes, dim)[labels] + generator.normal(
        size=(len(labels), dim)
    ), labels


def distances(points):
    return np.linalg.norm(points[:, None] - points[None], axis=-1)


def test_separate_groups_stay_separate():
    features, labels = groups()
    points = tsne.project(features)
    assert points.shape == (80, 2)
    between = distances(points) + np.diag(np.full(80, np.inf))
    np.testing.assert_array_equal(labels[between.argmin(axis=1)], labels)


def test_map_is_reproducible():
    features, _ = groups(distance=1.0)
    np.testing.assert_array_equal(tsne.project(features), tsne.project(features.copy()))


@pytest.mark.parametrize("shape", [(4, 3), (5, 1), (40, 1), (40, 2)])
def test_small_sets_and_few_features_have_a_map(shape):
    points = tsne.project(np.random.default_rng(0).normal(size=shape))
    assert points.shape == (shape[0], 2) and np.isfinite(points).all()


@pytest.mark.parametrize("features", [np.zeros((0, 3)), np.eye(3), np.ones((10, 3))])
def test_map_and_measures_are_nan_without_enough_distinct_samples(features):
    points = tsne.project(features)
    assert points.shape == (len(features), 2) and np.isnan(points).all()
    assert math.isnan(tsne.trustworthiness(features, points))
    assert math.isnan(tsne.silhouette(points, np.arange(len(features)) % 2))


def test_silhouette_matches_its_definition():
    features, labels = groups(classes=3, size=5, distance=2.0)
    labels = np.append(labels, 7)  # A class with a single sample.
    features = np.append(features, features[:1] + 1, axis=0)
    between, values = distances(features), []
    for own, label in enumerate(labels):
        others = (labels == label) & (np.arange(len(labels)) != own)
        if not others.any():
            values.append(0.0)
            continue
        a = between[own, others].mean()
        b = min(between[own, labels == c].mean() for c in set(labels.tolist()) - {label})
        values.append((b - a) / max(a, b))
    assert tsne.silhouette(features, labels) == pytest.approx(np.mean(values), rel=1e-6)


@pytest.mark.parametrize("labels", [np.zeros(6, int), np.arange(6)])
def test_silhouette_of_a_single_class_or_single_samples_is_nan(labels):
    assert math.isnan(tsne.silhouette(np.random.default_rng(0).normal(size=(6, 2)), labels))


def test_trustworthiness_matches_its_definition():
    generator = np.random.default_rng(1)
    features = generator.normal(size=(30, 6))
    points = features[:, :2] + 0.1 * generator.normal(size=(30, 2))
    n, k = 30, 5
    # Ranks of neighbors start at 1; the sample itself has rank 0.
    ranks = distances(features).argsort(axis=1).argsort(axis=1)
    nearest = distances(points).argsort(axis=1)[:, 1 : k + 1]
    penalty = sum(max(ranks[i, j] - k, 0) for i in range(n) for j in nearest[i])
    expected = 1 - 2 * penalty / (n * k * (2 * n - 3 * k - 1))
    assert tsne.trustworthiness(features, points) == pytest.approx(expected)
    assert tsne.trustworthiness(features, features) == pytest.approx(1)
