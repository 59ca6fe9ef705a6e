"""Measures the geometry of features and classifiers, which shows why a method works.

The setting `diagnostics` adds columns `diag_…` to metrics.csv; docs/how-to/diagnostics.md explains
them. They are computed from the global model on up to 2,000 test samples; the angles are also
computed from the local models of up to three clients. The t-SNE map takes seconds; it is computed
from up to 1,000 samples after the last round only. Diagnostics do not influence a run: they share
neither randomness nor variables with it.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from tff_pcdd import data
from tff_pcdd.diagnostics import pruning
from tff_pcdd.diagnostics.views import GROUPS, SLOW, View, local_angles
from tff_pcdd.federated import ClientWork, TrainingSpec, initialization, make_message
from tff_pcdd.federated.batches import eval_batches
from tff_pcdd.federated.records import ClientData, ClientState, ServerState
from tff_pcdd.federated.weights import load
from tff_pcdd.methods import Network

PREFIX = "diag_"
MAX_SAMPLES = 2000
MAX_CLIENTS = 3


class Diagnostics:
    """The diagnostics of one experiment.

    Args:
        spec: what the computations of the experiment are built from.
        federation: the clients and their samples.
        names: a selection of `diagnostics.names()`.

    Attributes:
        names: the diagnostics of the global model, in the order of their columns.
        clients: numbers of the clients whose local models `measure` trains.
    """

    def __init__(self, spec: TrainingSpec, federation: data.Federation, names: Sequence[str]):
        self._spec = spec
        # Without a global model, only local models are measured.
        has_global_model = spec.method.has_global_model
        self.names = [name for name in GROUPS if name in names and has_global_model]
        test = federation.test
        self._examples = test.take(data.stratified_indices(test.y, MAX_SAMPLES, seed=0))
        self._other = federation.train.x[:1]
        self._counts = federation.class_counts()
        self._local: ClientWork | None = None
        self.clients = choose_clients(self._counts) if "angles" in names else []

    @functools.cached_property
    def _net(self) -> Network:
        with initialization.zeros():
            return self._spec.network()

    def columns(self) -> list[str]:
        """Names of the columns; computes nothing."""
        with self._spec.outline() as net:
            names = [*self._spec.method.global_classifiers(net)]
        classifiers = {name: np.zeros([2, 1]) for name in names}
        blank = View(
            np.zeros([1, 1]), np.zeros(1, int), np.zeros(1, int), classifiers, np.zeros(2, int)
        )
        results = self._global_numbers(blank)
        if self.clients:
            results.update(local_angles([blank], [np.ones(2, bool)]))
        return [PREFIX + name for name in results]

    def measure(
        self,
        state: ServerState,
        clients: Sequence[tuple[ClientState, ClientData]],
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
            results.update(local_angles(views, list(self._counts[self.clients] > 0)))
        return {PREFIX + name: value for name, value in results.items()}

    def look(self, state: ServerState) -> View:
        """The global model of a state."""
        load(self._net, state.weights)
        return self._view(self._net)

    def _global_numbers(self, view: View, slow: bool = True) -> dict[str, float]:
        results = {}
        for name in self.names:
            if slow or name not in SLOW:
                results.update(GROUPS[name](view))
        return results

    def _train(self, state, client_state, client_data) -> View:
        """The local model of a client after its training in the next round."""
        if self._local is None:
            self._local = ClientWork(self._spec)
        arguments = make_message(self._spec.method, state), client_state, client_data
        self._local.update(*tf.nest.map_structure(tf.convert_to_tensor, arguments))
        return self._view(self._spec.method.local_view(self._local.net))

    def _view(self, net: Network) -> View:
        method, number = self._spec.method, len(self._examples)
        parts, predictions, inner = [], [], []
        for x in eval_batches(self._examples.x, self._other, self._spec):
            parts.append(method.embed(net, x, training=False).numpy())
            if "pruning" in self.names:
                inner.append(net["backbone"](x, training=False).numpy())
            if "nc" in self.names:
                predictions.append(method.global_logits(net, x)[""].numpy().argmax(axis=1))
        features = np.concatenate(parts)
        # A diverged model cannot be measured, but must not stop the run.
        known = np.isfinite(features).all(axis=1)
        known[number:] = False
        labels = self._examples.y[known[:number]]
        return View(
            features=features[known],
            labels=labels,
            predictions=np.concatenate(predictions)[known] if predictions else np.zeros(0, int),
            classifiers={
                name: np.asarray(matrix).T
                for name, matrix in method.global_classifiers(net).items()
            },
            class_counts=self._counts.sum(axis=0),
            client_counts=self._counts,
            pruned=(
                pruning.accuracies(method, net, np.concatenate(inner)[known], labels)
                if inner
                else None
            ),
        )


def choose_clients(class_counts: np.ndarray, count: int = MAX_CLIENTS) -> list[int]:
    """Chooses the clients whose local models are measured.

    Returns:
        Numbers of clients with samples, in ascending order. Clients that hold and lack at least two
        classes each are preferred, because all their angles are defined.
    """
    held = (class_counts > 0).sum(axis=1)
    telling = (held >= 2) & (class_counts.shape[1] - held >= 2)
    order = np.argsort(~telling, kind="stable")
    return sorted(order[held[order] > 0][:count].tolist())
