"""Rounds of a federated method without TFF: the mean over clients is taken in NumPy."""

import contextlib

import numpy as np
import tensorflow as tf

from tests import support
from tff_pcdd.federated import ClientWork, PersonalEvaluation, ServerWork, make_message
from tff_pcdd.federated import state as states
from tff_pcdd.federated.records import ClientData
from tff_pcdd.federated.weights import WeightsChange, load
from tff_pcdd.methods.network import assign


class Federation:
    """A federation in which chosen clients take part in each round.

    Client and server work are built once. They run op by op, which takes less time than tracing
    them, or traced once for any number of samples.

    Attributes:
        server: the server's state.
        results: what each client of the last cohort returned, in order.
    """

    def __init__(self, spec, parts, traced=False):
        """Makes a federation whose client k holds the examples `parts[k]`."""
        self.spec = spec
        self._parts, self._traced = parts, traced
        self._states = {}
        with self._mode():
            self.server = support.server_state(spec)
        self.results = []
        self._step = ServerWork(spec).step
        self._update = self._personal = None

    @contextlib.contextmanager
    def _mode(self):
        tf.config.run_functions_eagerly(not self._traced)
        try:
            yield
        finally:
            tf.config.run_functions_eagerly(False)

    def _prepare(self, function, *arguments):
        return _trace(function, *arguments) if self._traced else function

    def _data(self, client, cohort_index=0):
        seed = tf.constant([client, int(self.server.round)])
        index = tf.constant(cohort_index)
        return ClientData(train=self._parts[client], seed=seed, cohort_index=index)

    @property
    def message(self):
        """What the server sends."""
        return make_message(self.spec.method, self.server)

    def state(self, client):
        """What a client keeps; its initial state until it takes part."""
        if client not in self._states:
            seed = tf.constant([client, 1])
            with self._mode():
                self._states[client] = states.initial_client_state(self.spec, seed)
        return self._states[client]

    def round_of_nobody(self):
        """A round in which the whole cohort drops out, so that only its number changes."""
        self.server = self.server._replace(round=self.server.round + 1)
        return self

    def round(self, cohort=None):
        """Plays a round of a cohort, by default of all clients."""
        cohort = range(len(self._parts)) if cohort is None else cohort
        message, self.results = self.message, []
        for index, client in enumerate(cohort):
            arguments = (message, self.state(client), self._data(client, index))
            if self._update is None:
                self._update = self._prepare(ClientWork(self.spec).update, *arguments)
            with self._mode():
                self.results.append(self._update(*arguments))
        for client, result in zip(cohort, self.results, strict=True):
            self._states[client] = result["state"]
        shares = np.array([float(result["weight"]) for result in self.results])
        shares /= max(shares.sum(), 1e-30)  # a cohort without samples sends no change
        change = tf.nest.map_structure(
            lambda *deltas: sum(share * delta for share, delta in zip(shares, deltas, strict=True)),
            *(result["update"] for result in self.results),
        )
        assert isinstance(change, WeightsChange)
        sums = tf.nest.map_structure(
            lambda *values: sum(values), *(r["sums"] for r in self.results)
        )
        with self._mode():
            weights, server = self._step(self.server, change, sums, tf.constant(float(len(cohort))))
        number = self.server.round + 1
        self.server = self.server._replace(round=number, server=server, weights=weights)
        return self

    def global_logits(self, x):
        """Logits of the global model's heads by name."""
        net = self.spec.network()
        load(net, self.server.weights)
        return {k: v.numpy() for k, v in self.spec.method.global_logits(net, x).items()}

    def personal_logits(self, client, x, tuned):
        """Logits of a client's personal model, before or after its local epochs."""
        arguments = (self.message, self.state(client), self._data(client))
        if self._personal is None:
            evaluation = PersonalEvaluation(self.spec)
            functions = {
                epochs: self._prepare(evaluation.personal_weights, *arguments, epochs)
                for epochs in (False, True)
            }
            self._personal = evaluation, functions
        evaluation, functions = self._personal
        with self._mode():
            values = functions[tuned](*arguments, tuned)
        net, known = evaluation.personal_model(*arguments)
        assign(net.variables, values)
        return self.spec.method.personal_logits(net, x, known).numpy()


def _trace(function, message, state, data, *flags):
    """The function for a client with any number of samples."""

    def spec(value):
        return tf.TensorSpec.from_tensor(value)

    examples = {
        name: tf.TensorSpec([None, *value.shape[1:]], value.dtype)
        for name, value in data.train.items()
    }
    message, state, data = tf.nest.map_structure(spec, (message, state, data))
    return function.get_concrete_function(message, state, data._replace(train=examples), *flags)
