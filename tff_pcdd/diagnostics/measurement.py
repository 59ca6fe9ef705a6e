"""Measures the geometry of features and classifiers, which shows why a method works.

The setting `diagnostics` adds columns `diag_…` to metrics.csv; docs/how-to/diagnostics.md explains
them. They are computed from the global model on up to 2,000 test samples; the angles are also
computed from the local models of up to three clients. The t-SNE map takes seconds; it is computed
from up to 1,000 samples after the last round only. Diagnostics do not influence a run: they share
neither randomness nor variables with it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from tff_pcdd import data
from tff_pcdd.diagnostics import geometry, tsne
from tff_pcdd.federated import ClientWork, TrainingSpec, initialization, make_message
from tff_pcdd.federated.weights import load
from tff_pcdd.methods import Network

PREFIX = "diag_"
MAX_SAMPLES = 2000
MAX_CLIENTS = 3
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
    """

    features: np.ndarray
    labels: np.ndarray
    predictions: np.ndarray
    classifiers: Mapping[str, np.ndarray]
    class_counts: np.ndarray

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


def _tsne(view: View) -> dict[str, float]:
    view = view.mapped()
    points = tsne.project(view.features)
    return {
        "tsne_trustworthiness": tsne.trustworthiness(view.features, points),
        "tsne_silhouette": tsne.silhouette(points, view.labels),
    }


# The groups of diagnostics of the global model, in the order of their columns.
_GROUPS: dict[str, Callable[[View], dict[str, float]]] = {
    "angles": _angles,
    "eigen": _eigen,
    "nc": _neural_collapse,
    "norms": _norms,
    "features": _features,
    "tsne": _tsne,
}

# They take seconds, and are computed after the last round only.
_SLOW = ("tsne",)


def _local_angles(views: Sequence[View], existing: Sequence[np.ndarray]) -> dict[str, float]:
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


class Diagnostics:
    """The diagnostics of one experiment.

    Args:
        spec: what the computations of the experiment are built from.
        federation: the clients and their samples.
        names: a selection of angles, eigen, nc, norms, features, tsne.

    Attributes:
        clients: numbers of the clients whose local models `measure` trains.
    """

    def __init__(self, spec: TrainingSpec, federation: data.Federation, names: Sequence[str]):
        self._spec = spec
        # Without a global model, only local models are measured.
        has_global_model = spec.method.has_global_model
        self._names = [name for name in _GROUPS if name in names and has_global_model]
        test = federation.test
        self._examples = test.take(data.stratified_indices(test.y, MAX_SAMPLES, seed=0))
        self._counts = federation.class_counts()
        with initialization.zeros():
            self._net = spec.network()
        self._local: ClientWork | None = None
        self.clients = choose_clients(self._counts) if "angles" in names else []

    @property
    def names(self) -> Sequence[str]:
        """The diagnostics of the global model, in the order of their columns."""
        return tuple(self._names)

    def columns(self) -> list[str]:
        """Names of the columns; computes nothing."""
        classifiers = {
            name: np.zeros([2, 1]) for name in self._spec.method.global_classifiers(self._net)
        }
        blank = View(
            np.zeros([1, 1]), np.zeros(1, int), np.zeros(1, int), classifiers, np.zeros(2, int)
        )
        results = self._global_numbers(blank)
        if self.clients:
            results.update(_local_angles([blank], [np.ones(2, bool)]))
        return [PREFIX + name for name in results]

    def measure(
        self,
        state: Mapping[str, Any],
        clients: Sequence[tuple[Any, Mapping[str, Any]]],
        *,
        slow: bool = True,
    ) -> dict[str, float]:
        """The diagnostics of a state.

        Args:
            state: the server's state, from a `FederatedProcess`.
            clients: state and data of each client in `self.clients`, for the next round.
            slow: whether to include diagnostics that take seconds.

        Returns:
            Values by column; NaN where a value is not defined.
        """
        results = self._global_numbers(self.look(state), slow)
        if self.clients:
            views = [self._train(state, *client) for client in clients]
            results.update(_local_angles(views, list(self._counts[self.clients] > 0)))
        return {PREFIX + name: value for name, value in results.items()}

    def look(self, state: Mapping[str, Any]) -> View:
        """The global model of a state."""
        load(self._net, state["weights"])
        return self._view(self._net)

    def _global_numbers(self, view: View, slow: bool = True) -> dict[str, float]:
        results = {}
        for name in self._names:
            if slow or name not in _SLOW:
                results.update(_GROUPS[name](view))
        return results

    def _train(self, state, client_state, client_data) -> View:
        """The local model of a client after its training in the next round."""
        if self._local is None:
            self._local = ClientWork(self._spec)
        arguments = make_message(self._spec.method, state), client_state, client_data
        self._local.update(*tf.nest.map_structure(tf.convert_to_tensor, arguments))
        return self._view(self._local.net)

    def _view(self, net: Network) -> View:
        method, size = self._spec.method, self._spec.eval_batch_size
        features, predictions = [], []
        for start in range(0, len(self._examples), size):
            raw = tf.convert_to_tensor(self._examples.x[start : start + size])
            x = data.normalize(raw, self._spec.input_spec)
            features.append(method.embed(net, x, training=False).numpy())
            if "nc" in self._names:
                predictions.append(method.global_logits(net, x)[""].numpy().argmax(axis=1))
        features = np.concatenate(features)
        # A diverged model cannot be measured, but must not stop the run.
        known = np.isfinite(features).all(axis=1)
        return View(
            features=features[known],
            labels=self._examples.y[known],
            predictions=np.concatenate(predictions)[known] if predictions else np.zeros(0, int),
            classifiers={
                name: np.asarray(matrix).T
                for name, matrix in method.global_classifiers(net).items()
            },
            class_counts=self._counts.sum(axis=0),
        )


def choose_clients(class_counts: np.ndarray, count: int = MAX_CLIENTS) -> list[int]:
    """Chooses the clients whose local models are measured.

    Args:
        class_counts: training samples of each client and class, [K, C].
        count: the largest number of clients.

    Returns:
        Numbers of clients with samples, in ascending order. Clients that hold and lack at least two
        classes each are preferred, because all their angles are defined.
    """
    held = (class_counts > 0).sum(axis=1)
    telling = (held >= 2) & (class_counts.shape[1] - held >= 2)
    order = np.argsort(~telling, kind="stable")
    return sorted(order[held[order] > 0][:count].tolist())
