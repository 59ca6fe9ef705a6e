"""Clients whose loss is a parabola, so that rounds can be worked out by hand.

The model answers u + v for every sample, u of the backbone and v of the head; a client's loss is
(u + v - b)²/2, where b is the label of its samples.
"""

import sys

import numpy as np
import tensorflow as tf

from tff_pcdd import data, methods
from tff_pcdd.federated import SGD, ClientWork, ServerWork, TrainingSpec, make_message
from tff_pcdd.federated import state as states
from tff_pcdd.federated.weights import WeightsChange

_NUM_CLASSES = 5


class Shift(tf.keras.layers.Layer):
    """Adds a trained number to the mean of what it gets."""

    def __init__(self, start: float | None):
        super().__init__()
        self._start = start

    def build(self, input_shape):
        if self._start is not None:
            initializer = tf.keras.initializers.Constant(self._start)
            self.shift = self.add_weight(shape=(1,), initializer=initializer)
        super().build(input_shape)

    def call(self, inputs):
        mean = tf.reduce_mean(inputs, axis=tuple(range(1, len(inputs.shape))))[:, None]
        return mean if self._start is None else mean + self.shift


def training_spec(
    monkeypatch, name, u, v=None, *, rate, epochs=1, clients=2, momentum=0.0, decay=0.0, **options
):
    """The training spec of a method on parabolas; without `v` the head has no variable."""

    def backbone():
        inputs = tf.keras.Input((1, 1, 1))
        return tf.keras.Model(inputs, Shift(u)(inputs))

    def squared(labels, outputs):
        return 0.5 * tf.reduce_mean(tf.square(outputs[:, 0] - tf.cast(labels, tf.float32)))

    module = sys.modules[methods.get(name).__module__]
    base = sys.modules["tff_pcdd.methods.contract"]
    for place in (module, base):
        monkeypatch.setattr(place, "cross_entropy", squared, raising=False)
        monkeypatch.setattr(place, "linear_head", lambda *_: Shift(v), raising=False)
    task = methods.TaskSpec(
        num_classes=_NUM_CLASSES,
        feature_dim=1,
        backbone=backbone,
        class_counts=np.ones([clients, _NUM_CLASSES]),
        cohort_size=clients,
    )
    spec = data.InputSpec("image", (1, 1, 1), "float32")
    method = methods.create(name, **options)
    optimizer = SGD(learning_rate=rate, momentum=momentum, weight_decay=decay, clip_norm=0.0)
    return TrainingSpec(method, task, spec, optimizer, epochs, batch_size=3)


def samples(b: int, size: int):
    """A client's samples, with the minimum of its parabola at b."""
    return {"x": tf.zeros([size, 1, 1, 1]), "y": tf.fill([size], b)}


class Federation:
    """Rounds of full participation, with the mean taken in NumPy."""

    def __init__(self, spec, minima, sizes=None):
        self._spec = spec
        sizes = sizes or [2] * len(minima)
        self._parts = [samples(b, n) for b, n in zip(minima, sizes, strict=True)]
        self.server = {
            "weights": states.initial_weights(spec),
            "server": states.initial_server(spec),
            "round": tf.constant(0),
        }
        self.clients = [
            states.initial_client_state(spec, tf.constant([k, 0])) for k in range(len(minima))
        ]
        self.locals = []

    @property
    def weights(self):
        return [float(value[0]) for value in self.server["weights"]["trainable"]]

    def round(self):
        """Plays a round; `locals` are the clients' changes of the first shared variable."""
        message = make_message(self._spec.method, self.server)
        results = []
        for k, part in enumerate(self._parts):
            work = ClientWork(self._spec)
            data = {"train": part, "seed": tf.constant([k, 1]), "cohort_index": tf.constant(k)}
            results.append(work.update(message, self.clients[k], data))
        self.clients = [result["state"] for result in results]
        self.locals = [
            [float(delta[0]) for delta in tf.nest.flatten(result["update"])] for result in results
        ]
        shares = np.array([float(result["weight"]) for result in results])
        shares /= shares.sum()
        change = tf.nest.map_structure(
            lambda *deltas: sum(share * delta for share, delta in zip(shares, deltas, strict=True)),
            *(result["update"] for result in results),
        )
        assert isinstance(change, WeightsChange)
        sums = tf.nest.map_structure(lambda *values: sum(values), *(r["sums"] for r in results))
        work = ServerWork(self._spec)
        weights, server = work.step(self.server, change, sums, tf.constant(float(len(results))))
        self.server = {"weights": weights, "server": server, "round": self.server["round"] + 1}
        return self
