"""FedLoGe's frame and features: statistics, tables and pictures."""

import csv
import itertools
import json

import numpy as np
import pytest

from publication import fedloge_frames, measured
from tests.markdown_tables import table_rows
from tff_pcdd import layers


def _angles(frame):
    """The angles of all pairs of columns, in degrees."""
    units = [column / np.sqrt(column @ column) for column in np.asarray(frame, float).T]
    return [np.degrees(np.arccos(a @ b)) for a, b in itertools.combinations(units, 2)]


def _relu(samples, width, seed=0):
    rng = np.random.default_rng(seed)
    features = np.maximum(rng.normal(0.3, 1, (samples, width)), 0)
    return features, np.arange(samples) % 3


def test_statistics_of_a_frame_are_those_of_lengths_and_pairs():
    frame = np.random.default_rng(0).normal(size=(7, 5)) * [1, 2, 3, 4, 5]
    lengths = np.sqrt((frame**2).sum(axis=0))
    angles = _angles(frame)
    assert fedloge_frames.frame_statistics(frame) == pytest.approx(
        {
            "mean of norm": lengths.sum() / 5,
            "variance of norm": ((lengths - lengths.sum() / 5) ** 2).sum() / 5,
            "mean of angle": sum(angles) / 10,
            "variance of angle": sum((a - sum(angles) / 10) ** 2 for a in angles) / 10,
        }
    )


@pytest.mark.parametrize("sparsity", fedloge_frames.SPARSITIES)
def test_the_start_has_the_angles_that_the_page_derives(sparsity):
    classes, width = 150, 300
    start = layers.sparse_etf(width, classes, sparsity=sparsity, steps=0, seed=0, cache_dir="")
    found = fedloge_frames.frame_statistics(start)
    assert found["mean of norm"] == pytest.approx(np.sqrt(1 - sparsity), rel=0.01)
    mean = np.degrees(np.arccos(-(1 - sparsity) / (classes - 1)))
    assert found["mean of angle"] == pytest.approx(mean, abs=0.03)
    variance = (1 - (1 - sparsity) ** 2) / width * np.degrees(1) ** 2
    assert found["variance of angle"] == pytest.approx(variance, rel=0.1)


def test_class_means_are_sorted_with_their_variances():
    features, labels = _relu(60, 8)
    means, variances = fedloge_frames.sorted_means(features, labels)
    for label in range(3):
        own = features[labels == label]
        order = sorted(range(8), key=lambda entry: -own[:, entry].mean())
        largest = own.mean(axis=0).max()
        np.testing.assert_allclose(means[label], own.mean(axis=0)[order] / largest)
        np.testing.assert_allclose(variances[label], own.var(axis=0)[order] / largest**2)
    assert (means[:, 0] == 1).all()


def test_measures_of_class_means():
    means = np.array([[4.0, 0, 0, 0], [2, 2, 2, 2], [0, 8, 5, 0.04]])
    noise = np.array([1.0, 2, 3, 4])
    # Two samples of each class, at equal distances from its mean.
    features = np.concatenate([means + noise, means - noise])
    found = fedloge_frames.measure(features, np.tile(np.arange(3), 2))
    effective = [1, 4, 13.04**2 / (64 + 25 + 0.04**2)]
    assert found["effective entries"] == pytest.approx(np.mean(effective))
    assert found["below 1 %"] == pytest.approx((3 + 0 + 2) / 3)
    # Large are the first entry, the first two of four equal ones, and the second entry.
    large = 1 / 16 + (1 + 4) / 4 + 4 / 64
    assert found["noise, large"] == pytest.approx(large / (1 + 1 + 1 + 1))
    others = (4 + 9 + 16) / 16 + (9 + 16) / 4 + (1 + 9 + 16) / 64
    assert found["noise, others"] == pytest.approx(others / (2 + (25 + 0.04**2) / 64))
    center = np.array([2, 10 / 3, 7 / 3, 2.04 / 3])
    lengths = (16 + 16 + 64 + 25 + 0.04**2) / 3
    assert found["common"] == pytest.approx(center @ center / lengths)
    assert found["within / between"] == pytest.approx(30 / (lengths - center @ center))


def test_the_plane_shows_most_of_the_variance():
    points = np.random.default_rng(1).normal(size=(6, 5)) * [5, 1, 3, 1, 1]
    directions, share = fedloge_frames.principal_plane(points)
    values, vectors = np.linalg.eigh(np.cov(points.T))
    np.testing.assert_allclose(np.abs(directions @ vectors[:, [-1, -2]]), np.eye(2), atol=1e-9)
    assert share == pytest.approx(values[-2:].sum() / values.sum())


def test_published_figures_stand_beside_those_of_frames():
    rows = measured.read("fedloge")
    lines = table_rows(fedloge_frames.tables(rows)["table6"])
    with open(fedloge_frames.PUBLISHED, newline="", encoding="utf-8") as file:
        printed = [row["value"] for row in csv.DictReader(file)]
    found = [line[4:] for line in lines if line[3] == "published"]
    assert [cell for line in found for cell in line] == printed


def test_rows_and_pictures_are_those_of_frames_and_runs(tmp_path, monkeypatch):
    frames = fedloge_frames.Frames(10, 84, 3, (1,), ((0.6, 0.5), (0.6, 1.0)), ((0.6, 1.5),))
    small = {"dataset": "digits", "max_train_samples": 300, "num_clients": 3, "rounds": 1}
    small |= {"imbalance_factor": 2, "min_samples": 2, "local_epochs": 1, "eval_every": 1}
    monkeypatch.setattr(fedloge_frames, "FRAMES", {fedloge_frames.DRAWN: frames})
    monkeypatch.setattr(fedloge_frames, "SPARSITIES", (0.6,))
    monkeypatch.setattr(fedloge_frames, "NORMS", (0.5, 1.0))
    monkeypatch.setattr(fedloge_frames, "SEEDS", (3,))
    monkeypatch.setattr(fedloge_frames, "RUNS", {"dense": 0.0})
    monkeypatch.setattr(fedloge_frames, "SETTINGS", {**fedloge_frames.SETTINGS, **small})
    data = {"data_dir": None}
    start, half, one, scaled, trained = fedloge_frames.compute(tmp_path, data)

    assert [row["γ"] for row in (start, half, one)] == ["", 0.5, 1.0]
    for row, norm, steps in ((start, 1.0, 0), (half, 0.5, 3), (one, 1.0, 3)):
        frame = layers.sparse_etf(84, 10, norm=norm, steps=steps, seed=1, cache_dir="")
        angles = _angles(frame)
        lengths = np.linalg.norm(frame, axis=0)
        values = lengths.mean(), lengths.var(), np.mean(angles), np.var(angles)
        found = [float(row[name]) for name in list(row)[6:]]
        assert found == pytest.approx(values, rel=1e-4)
    # Three steps of 1e-4 in entries of about 0.26 change lengths by less than a thousandth.
    assert float(scaled["mean of norm"]) == pytest.approx(1.5, rel=1e-3)
    assert float(scaled["mean of angle"]) == pytest.approx(float(start["mean of angle"]), rel=1e-3)

    assert (trained["frame"], trained["seed"]) == ("dense", 3)
    summary = json.loads((tmp_path / "sparsity_0_3" / "summary.json").read_text())
    assert float(trained["GA"]) == pytest.approx(summary["ga_final"], rel=1e-4)
    with np.load(tmp_path / "features" / "sparsity_0_3.npz") as arrays:
        features, labels = arrays["features"].astype(float), arrays["labels"]
    assert features.shape == (len(labels), 84)
    effective = [
        mean.sum() ** 2 / (mean**2).sum()
        for mean in (features[labels == label].mean(axis=0) for label in range(10))
    ]
    assert float(trained["effective entries"]) == pytest.approx(np.mean(effective), rel=1e-4)

    drawn = fedloge_frames.pictures(tmp_path, data)
    curves = drawn["fedloge_features"].axes[0].get_lines()[0]
    means = [np.sort(features[labels == label].mean(axis=0))[::-1] for label in range(10)]
    np.testing.assert_allclose(
        curves.get_ydata(), np.mean([mean / mean[0] for mean in means], axis=0)
    )
    *_, last = drawn["fedloge_cosines"].axes[1].get_images()
    np.testing.assert_allclose(np.degrees(np.arccos(last.get_array()[0, 1])), angles[0], rtol=1e-5)
    assert len(drawn["fedloge_class_means"].axes[0].collections) == 20
