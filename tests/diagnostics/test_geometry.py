"""Geometry of features and classifiers, compared with known shapes and loops over samples."""

import math

import numpy as np
import pytest

from tff_pcdd.diagnostics import geometry

C, D = 5, 7


def simplex(num_classes=C, feature_dim=D):
    """A simplex ETF whose rows are the vectors, [num_classes, feature_dim]."""
    generator = np.random.default_rng(3)
    basis, _ = np.linalg.qr(generator.normal(size=(feature_dim, num_classes)))
    return (basis @ (np.eye(num_classes) - 1 / num_classes)).T


def random_features(seed=0, size=60, dim=D):
    generator = np.random.default_rng(seed)
    labels = generator.integers(0, C, size)
    return generator.normal(size=(size, dim)) + 2 * np.eye(C, dim)[labels], labels


def angle(a, b):
    return math.degrees(math.acos(a @ b / math.sqrt((a @ a) * (b @ b))))


# Angles.


@pytest.mark.parametrize("num_classes", [2, 3, 10, 100])
def test_all_angles_of_a_simplex_etf_are_maximal(num_classes):
    vectors = simplex(num_classes, num_classes + 2)
    expected = math.degrees(math.acos(-1 / (num_classes - 1)))
    assert geometry.simplex_angle(num_classes) == pytest.approx(expected)
    assert geometry.mean_angles(vectors).all == pytest.approx(expected, abs=1e-4)
    assert geometry.smallest_angle(vectors) == pytest.approx(expected, abs=1e-4)


def test_simplex_angle_needs_two_classes():
    assert math.isnan(geometry.simplex_angle(1))


def test_angles_match_numpy():
    vectors = np.random.default_rng(0).normal(size=(4, 3))
    actual = geometry.angles(vectors)
    expected = [[angle(a, b) if a is not b else 0 for b in vectors] for a in vectors]
    np.testing.assert_allclose(actual, expected, atol=1e-5)


def test_mean_angles_of_existing_and_missing_classes():
    vectors = np.random.default_rng(1).normal(size=(C, D))
    held = np.array([True, False, True, False, True])
    sorts = {"all": [], "existing": [], "missing": [], "between": []}
    for i in range(C):
        for j in range(i):
            sort = "between" if held[i] != held[j] else "existing" if held[i] else "missing"
            for name in ("all", sort):
                sorts[name].append(angle(vectors[i], vectors[j]))
    actual = geometry.mean_angles(vectors, held)
    for name, values in sorts.items():
        assert getattr(actual, name) == pytest.approx(np.mean(values)), name


def test_undefined_angles_are_ignored():
    """A zero vector, a class without samples, pairs that do not exist."""
    vectors = np.array([[1.0, 0], [0, 1], [0, 0], [np.nan, np.nan], [-1, 0]])
    assert geometry.mean_angles(vectors).all == pytest.approx((90 + 90 + 180) / 3)
    assert geometry.smallest_angle(vectors) == pytest.approx(90)
    everything = geometry.mean_angles(vectors, np.ones(5, bool))
    assert math.isnan(everything.missing) and math.isnan(everything.between)
    single = geometry.mean_angles(np.ones((1, 3)))
    assert all(math.isnan(value) for value in single)
    assert math.isnan(geometry.smallest_angle(np.zeros((3, 2))))


def test_rounding_keeps_cosines_in_range():
    vectors = np.full((2, 3), 0.1)
    assert geometry.angles(vectors)[0, 1] == pytest.approx(0, abs=1e-5)
    assert geometry.angles(vectors * [[1], [-1]])[0, 1] == pytest.approx(180, abs=1e-5)


# Norms.


def test_norms_and_their_coefficient_of_variation():
    vectors = np.random.default_rng(2).normal(size=(C, D))
    lengths = np.sqrt((vectors**2).sum(axis=1))
    np.testing.assert_allclose(geometry.norms(vectors), lengths)
    assert geometry.variation(lengths) == pytest.approx(lengths.std() / lengths.mean())
    assert geometry.variation(np.full(4, 2.0)) == 0
    assert math.isnan(geometry.variation(np.zeros(4)))
    assert math.isnan(geometry.variation([]))


def test_correlation_with_log_counts():
    counts = np.array([1, 10, 100, 1000])
    assert geometry.log_count_correlation(np.array([1.0, 2, 3, 4]), counts) == pytest.approx(1)
    assert geometry.log_count_correlation(np.array([4.0, 3, 2, 1]), counts) == pytest.approx(-1)
    values = np.array([1.0, 5, 2, 4])
    expected = np.corrcoef(values, np.log(counts))[0, 1]
    assert geometry.log_count_correlation(values, counts) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("values", "counts"),
    [
        ([1.0, 2, 3], [5, 5, 5]),
        ([1.0, 1 + 1e-7, 1 - 1e-7], [1, 2, 3]),
        ([1.0, 2, 3], [4, 0, 0]),
        ([0.0, 0, 0], [1, 2, 3]),
    ],
)
def test_correlation_of_constants_is_nan(values, counts):
    assert math.isnan(geometry.log_count_correlation(np.array(values), np.array(counts)))


def test_correlation_ignores_empty_classes():
    actual = geometry.log_count_correlation(np.array([1.0, 9, 2]), np.array([1, 0, 10]))
    assert actual == pytest.approx(1)


# Classes.


def test_class_means():
    features, labels = random_features()
    actual = geometry.class_means(features, labels, C + 1)
    for label in range(C):
        np.testing.assert_allclose(actual[label], features[labels == label].mean(axis=0))
    assert np.isnan(actual[C]).all()


def test_centred_means_sum_to_zero_for_unequal_classes():
    features, labels = random_features()
    means = geometry.class_means(features, labels, C + 1)
    actual = geometry.centred(means)
    np.testing.assert_allclose(actual[:C].sum(axis=0), 0, atol=1e-12)
    np.testing.assert_allclose(actual[0] - actual[1], means[0] - means[1])
    assert np.isnan(actual[C]).all()
    assert not geometry.centred(np.full((3, 2), 0.1)).any()
    assert np.isnan(geometry.centred(np.full((2, 3), np.nan))).all()


def test_eigenvalues_of_class_covariances(monkeypatch):
    features, labels = random_features(size=80)
    monkeypatch.setattr(geometry, "_EIGENVALUES", 4)
    actual = geometry.class_eigenvalues(features, labels, C)
    assert actual.shape == (C, 4)
    for label in range(C):
        covariance = np.cov(features[labels == label], rowvar=False)
        expected = np.linalg.eigvalsh(covariance)[::-1][:4]
        np.testing.assert_allclose(actual[label], expected)


def test_eigenvalues_of_small_classes():
    """Three samples span two dimensions; a single sample has no covariance."""
    features = np.random.default_rng(0).normal(size=(4, D))
    actual = geometry.class_eigenvalues(features, np.array([0, 0, 0, 1]), 3)
    assert actual.shape == (3, D)
    assert (actual[0, :2] > 0.01).all()
    np.testing.assert_allclose(actual[0, 2:], 0, atol=1e-12)
    assert np.isnan(actual[1:]).all()


def test_spread_of_eigenvalues():
    eigenvalues = np.array([[4.0, 0, 0, 0], [1, 1, 1, 1], [np.nan] * 4, [0, 0, 0, 0]])
    assert geometry.effective_rank(eigenvalues) == pytest.approx((1 + 4) / 2)
    assert geometry.top_share(eigenvalues) == pytest.approx((1 + 0.25) / 2)
    for function in (geometry.effective_rank, geometry.top_share):
        assert math.isnan(function(np.full((2, 3), np.nan)))


def table7(features, labels):
    """FedMR's measure on a mini-batch, from the eigenvalues of the full matrix."""
    total, freedom = np.zeros([features.shape[1]] * 2), 0
    for label in np.unique(labels):
        x = features[labels == label]
        z = (x - x.mean(axis=0)) / x.std(axis=0, ddof=1)
        total += z.T @ z
        freedom += len(x) - 1
    largest = np.linalg.eigvalsh(total / freedom)[::-1][:50]
    return np.sum((largest - largest.mean()) ** 2) / len(labels)


def measured(features, labels):
    eigenvalues = geometry.standardized_eigenvalues(features, labels, C)
    return geometry.eigenvalue_variance(eigenvalues, len(labels))


def correlated_batch(width=60):
    generator = np.random.default_rng(2)
    labels = np.arange(128) % C
    mixing = generator.normal(size=(width, width)) * np.geomspace(1, 0.01, width)[:, None]
    return generator.normal(size=(128, width)) @ mixing + labels[:, None], labels


def test_table_7_of_fedmr():
    features, labels = correlated_batch()
    np.testing.assert_allclose(measured(features, labels), table7(features, labels))
    # The 50 largest are all there are, of which the trace is the width.
    narrow = features[:, :20]
    eigenvalues = geometry.standardized_eigenvalues(narrow, labels, C)
    assert eigenvalues.sum() == pytest.approx(20)
    np.testing.assert_allclose(measured(narrow, labels), table7(narrow, labels))


def test_table_7_ignores_lengths_and_places_of_features():
    features, labels = correlated_batch()
    expected = measured(features, labels)
    np.testing.assert_allclose(measured(1e-3 * features, labels), expected)
    np.testing.assert_allclose(measured(1e3 * features - 7, labels), expected)
    factors = np.geomspace(1e-2, 1e2, features.shape[1])
    np.testing.assert_allclose(measured(factors * features, labels), expected)


def test_table_7_of_equal_dead_and_few_features():
    features, labels = correlated_batch()
    same = np.repeat(features[:, :1], 60, axis=1)
    assert measured(same, labels) == pytest.approx(0.98 * 60**2 / 128)
    # A constant feature, up to the rounding of float32, adds nothing.
    dead = np.full([128, 5], 3, np.float32) + np.float32(1e-7) * labels[:, None]
    padded = np.concatenate([features, dead], axis=1)
    np.testing.assert_allclose(measured(padded, labels), measured(features, labels))
    assert math.isnan(measured(features[:C], np.arange(C)))
    assert math.isnan(measured(features[:0], labels[:0]))


# Neural collapse.


def test_neural_collapse_of_collapsed_features_is_zero():
    """Features at the vertices of a shifted simplex, in float32 as from a network."""
    vertices = 3 * simplex()
    labels = np.repeat(np.arange(C), 4)
    features = (vertices[labels] + 0.7).astype(np.float32)
    means = geometry.class_means(features, labels, C)
    centred = geometry.centred(means)
    assert geometry.nc1(features, labels, C) == pytest.approx(0, abs=1e-9)
    assert geometry.nc2_equinorm(centred) == pytest.approx(0, abs=1e-5)
    assert geometry.nc2_equiangularity(centred) == pytest.approx(0, abs=1e-5)
    assert geometry.nc2_maximal_angle(centred) == pytest.approx(0, abs=1e-5)
    assert geometry.nc3(5 * vertices, centred) == pytest.approx(0, abs=1e-5)
    assert geometry.nc3(-vertices, centred) == pytest.approx(2, abs=1e-5)
    assert geometry.nc4(labels, features, means) == 0


@pytest.mark.parametrize("dim", [3, 7])
def test_nc1_matches_its_formula(dim):
    """Classes have unequal sizes; there are more or fewer classes than dimensions."""
    generator = np.random.default_rng(5)
    labels = np.repeat(np.arange(C), [3, 9, 4, 6, 20])
    features = generator.normal(size=(len(labels), dim)) + generator.normal(size=(C, dim))[labels]
    means = np.stack([features[labels == c].mean(axis=0) for c in range(C)])
    within = np.mean([np.cov(features[labels == c].T, bias=True) for c in range(C)], axis=0)
    between = np.cov(means.T, bias=True)
    expected = np.trace(within @ np.linalg.pinv(between, rcond=1e-10)) / C
    assert geometry.nc1(features, labels, C) == pytest.approx(expected)
    # A class without samples does not change the result.
    assert geometry.nc1(features, labels, C + 2) == pytest.approx(expected)


def test_nc2_against_numpy():
    vectors = np.random.default_rng(6).normal(size=(C, D))
    units = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    cosines = [units[i] @ units[j] for i in range(C) for j in range(i)]
    assert geometry.nc2_equiangularity(vectors) == pytest.approx(np.std(cosines))
    expected = np.mean([abs(cosine + 1 / (C - 1)) for cosine in cosines])
    assert geometry.nc2_maximal_angle(vectors) == pytest.approx(expected)
    empty = np.vstack([vectors, np.full(D, np.nan)])
    assert geometry.nc2_maximal_angle(empty) == pytest.approx(expected)


def test_nc3_ignores_empty_classes():
    generator = np.random.default_rng(7)
    classifier, means = generator.normal(size=(2, C, D))
    means[2] = np.nan
    w, m = np.delete(classifier, 2, axis=0), np.delete(means, 2, axis=0)
    expected = np.linalg.norm(w / np.linalg.norm(w) - m / np.linalg.norm(m))
    assert geometry.nc3(classifier, means) == pytest.approx(expected)
    assert math.isnan(geometry.nc3(np.zeros((C, D)), means))


def test_nc4_counts_disagreement():
    features, labels = random_features(8)
    means = geometry.class_means(features, labels, C)
    nearest = np.array([np.argmin([np.sum((h - m) ** 2) for m in means]) for h in features])
    assert geometry.nc4(nearest, features, means) == 0
    other = np.where(np.arange(len(nearest)) < 15, (nearest + 1) % C, nearest)
    assert geometry.nc4(other, features, means) == pytest.approx(15 / len(nearest))
    means[0] = np.nan
    assert geometry.nc4(nearest, features, means) >= np.mean(nearest == 0)


def test_neural_collapse_of_degenerate_features():
    features, labels = random_features()
    one = np.zeros(len(labels), int)
    means = geometry.centred(geometry.class_means(features, one, C))
    assert math.isnan(geometry.nc1(features, one, C))
    assert math.isnan(geometry.nc2_maximal_angle(means))
    assert math.isnan(geometry.nc2_equiangularity(means))
    same = np.full_like(features, 0.1)
    assert math.isnan(geometry.nc1(same, labels, C))
    nothing, none = np.zeros((0, D)), np.zeros(0, int)
    assert math.isnan(geometry.nc1(nothing, none, C))
    assert math.isnan(geometry.nc4(none, nothing, geometry.class_means(nothing, none, C)))


# Features.


def test_feature_statistics():
    features = np.array([[0.0, 1, -1, 2], [0, 3, -2, 2], [0, 5, 0, 2]])
    each = geometry.feature_statistics(features)
    np.testing.assert_allclose(each.mean, [0, 3, -1, 2])
    np.testing.assert_allclose(each.variance, [0, 8 / 3, 2 / 3, 0])
    np.testing.assert_array_equal(each.constant, [True, False, False, True])
    np.testing.assert_array_equal(each.nonpositive, [True, False, True, False])


def test_feature_statistics_without_samples():
    each = geometry.feature_statistics(np.zeros((0, 3)))
    assert np.isnan(each.mean).all() and np.isnan(each.variance).all()
    assert not each.constant.any() and not each.nonpositive.any()


def test_alignment():
    """Four classes whose columns are axes, and two clients with two classes each."""
    classifier = np.eye(4) * [[1.0], [2.0], [3.0], [4.0]]  # Lengths do not matter.
    features = np.array(
        [[3, 4, 0, 0], [1, 0, 0, 0], [0, 0.6, 0.8, 0], [0, 0, 2, 0], [0, 0, 0, 5], [0, 0, 0, 0]]
    )
    labels = np.array([0, 0, 1, 2, 3, 3])
    counts = np.array([[10, 30, 0, 0], [0, 0, 5, 5]])
    found = geometry.alignment(features, labels, classifier, counts)
    assert found.own == pytest.approx((0.6 + 1 + 0.6 + 1 + 1) / 5)
    # Half of class 0 is closest to column 1, which its client has; class 1 to column 2, which its
    # client lacks.
    assert found.missing == pytest.approx(30 / 50)
    mean = np.array([0.6 + 1, 0.8 + 0.6, 0.8 + 1, 1]) / 5
    assert found.common == pytest.approx(mean @ mean)
    same = geometry.alignment(features, labels, None, counts)
    assert np.isnan(same[:2]).all() and same.common == found.common
    assert np.isnan(geometry.alignment(0 * features, labels, classifier, counts)).all()
