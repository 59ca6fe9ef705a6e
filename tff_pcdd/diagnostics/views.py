"""What is measured of a model: its features and classifiers, and the numbers made from them.

docs/how-to/diagnostics.md explains the numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from tff_pcdd import data
from tff_pcdd.diagnostics import geometry, pruning, tsne

MAX_MAPPED = 1000
# Size of the mini-batch in FedMR's table 7.
MINI_BATCH = 128


class View(NamedTuple):
    """The parts of a model that are measured.

    Attributes:
        features: features of the test samples, [n, d].
        labels: classes of the test samples, int [n].
        predictions: the classes that the model predicts, int [n].
        classifiers: the linear classifiers by name, [C, d] each; the main one is "".
        class_counts: training samples of each class in the federation, [C].
        client_counts: training samples of each client and class, [K, C].
        pruned: accuracies with pruned features, see `pruning.accuracies`, if they were measured.
    """

    features: np.ndarray
    labels: np.ndarray
    predictions: np.ndarray
    classifiers: Mapping[str, np.ndarray]
    class_counts: np.ndarray
    client_counts: np.ndarray = np.zeros([0, 0])
    pruned: Mapping[str, np.ndarray] | None = None

    @property
    def num_classes(self) -> int:
        return len(self.class_counts)

    @property
    def class_means(self) -> np.ndarray:
        """[C, d], NaN for classes without samples."""
        return geometry.class_means(self.features, self.labels, self.num_classes)

    @property
    def eigenvalues(self) -> np.ndarray:
        """The 50 largest eigenvalues of each class, [C, 50]; NaN with fewer than two samples."""
        return geometry.class_eigenvalues(self.features, self.labels, self.num_classes)

    def mapped(self) -> View:
        """The same model with few enough samples for a t-SNE map."""
        return self._sampled(MAX_MAPPED)

    def mini_batch(self) -> View:
        """The same model with the samples of a mini-batch, which are the same in every round."""
        return self._sampled(MINI_BATCH)

    def _sampled(self, number: int) -> View:
        chosen = data.stratified_indices(self.labels, number, seed=0)
        return self._replace(features=self.features[chosen], labels=self.labels[chosen])


def _angles(view: View) -> dict[str, float]:
    vectors = {
        "features": view.class_means,
        **{_named("classifier", name): matrix for name, matrix in view.classifiers.items()},
    }
    results = {}
    for name, rows in vectors.items():
        results[f"angle_{name}"] = geometry.mean_angles(rows).all
        results[f"angle_{name}_min"] = geometry.smallest_angle(rows)
    return results


def _alignment(view: View) -> dict[str, float]:
    found = geometry.alignment(
        view.features, view.labels, view.classifiers.get(""), view.client_counts
    )
    return {f"alignment_{name}": value for name, value in found._asdict().items()}


def _eigen(view: View) -> dict[str, float]:
    eigenvalues, batch = view.eigenvalues, view.mini_batch()
    standardized = geometry.standardized_eigenvalues(batch.features, batch.labels, view.num_classes)
    return {
        "eigen_variance": geometry.eigenvalue_variance(standardized, len(batch.labels)),
        "eigen_effective_rank": geometry.effective_rank(eigenvalues),
        "eigen_top_share": geometry.top_share(eigenvalues),
    }


def _neural_collapse(view: View) -> dict[str, float]:
    means = view.class_means
    centred = geometry.centred(means)
    results = {
        "nc1": geometry.nc1(view.features, view.labels, view.num_classes),
        "nc2_equinorm": geometry.nc2_equinorm(centred),
        "nc2_equiangularity": geometry.nc2_equiangularity(centred),
        "nc2_maximal_angle": geometry.nc2_maximal_angle(centred),
    }
    for name, matrix in view.classifiers.items():
        results[_named("nc3", name)] = geometry.nc3(matrix, centred)
    results["nc4"] = geometry.nc4(view.predictions, view.features, means)
    return results


def _norms(view: View) -> dict[str, float]:
    results = {}
    for name, matrix in view.classifiers.items():
        norms = geometry.norms(matrix)
        results[_named("norm_classifier", name)] = geometry.mean(norms)
        results[_named("norm_classifier_variation", name)] = geometry.variation(norms)
        results[_named("norm_classifier_count_correlation", name)] = geometry.log_count_correlation(
            norms, view.class_counts
        )
    return results


def _features(view: View) -> dict[str, float]:
    each = geometry.feature_statistics(view.features)
    return {
        "feature_norm": geometry.mean(geometry.norms(view.features)),
        "feature_mean": geometry.mean(each.mean),
        "feature_variance": geometry.mean(each.variance),
        "feature_constant": int(each.constant.sum()),
        "feature_nonpositive": int(each.nonpositive.sum()),
    }


def _pruning(view: View) -> dict[str, float]:
    return {f"pruning_{name}": value for name, value in pruning.numbers(view.pruned).items()}


def _tsne(view: View) -> dict[str, float]:
    view = view.mapped()
    points = tsne.project(view.features)
    return {
        "tsne_trustworthiness": tsne.trustworthiness(view.features, points),
        "tsne_silhouette": tsne.silhouette(points, view.labels),
    }


# The groups of diagnostics of the global model, in the order of their columns.
GROUPS: dict[str, Callable[[View], dict[str, float]]] = {
    "angles": _angles,
    "alignment": _alignment,
    "eigen": _eigen,
    "nc": _neural_collapse,
    "norms": _norms,
    "features": _features,
    "pruning": _pruning,
    "tsne": _tsne,
}

# They take seconds, and are computed after the last round only.
SLOW = ("tsne",)


def local_angles(views: Sequence[View], existing: Sequence[np.ndarray]) -> dict[str, float]:
    """Angles in the local models, as means over clients.

    Args:
        views: the local models.
        existing: for each client, which classes it holds, bool [C].
    """
    kinds = {"features": lambda view: view.class_means}
    if "" in views[0].classifiers:
        kinds["classifier"] = lambda view: view.classifiers[""]
    results = {}
    for name, vectors in kinds.items():
        found = [
            geometry.mean_angles(vectors(view), mask)
            for view, mask in zip(views, existing, strict=True)
        ]
        for pairs in geometry.MeanAngles._fields:
            values = [getattr(angles, pairs) for angles in found]
            results[f"local_angle_{name}_{pairs}"] = geometry.mean(values)
    return results


def _named(quantity: str, classifier: str) -> str:
    return f"{quantity}_{classifier}" if classifier else quantity
