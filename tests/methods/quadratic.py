"""Clients whose loss is a parabola, so that rounds can be worked out by hand.

The model answers u + v for every sample, u of the backbone and v of the head; a client's loss is
(u + v - b)²/2, where b is the label of its samples. The backbone also has a statistic that counts
its training steps.
"""

import sys

import numpy as np
import tensorflow as tf

from tests.methods.federation import Federation as AnyFederation
from tff_pcdd import data, methods
from tff_pcdd.federated import SGD, TrainingSpec
from tff_pcdd.layers.registration import register

_NUM_CLASSES = 5


@register  # AutoGraph would translate all client and server work for a layer from elsewhere
class Shift(tf.keras.layers.Layer):
    """Adds a trained number to the mean of what it gets."""

    def __init__(self, start: float | None, statistics: bool = True):
        super().__init__()
        self._start, self._statistics = start, statistics

    def build(self, input_shape):
        if self._start is not None:
            initializer = tf.keras.initializers.Constant(self._start)
            self.shift = self.add_weight(shape=(1,), initializer=initializer)
        if self._start is not None and self._statistics:
            self.steps = self.add_weight(shape=(1,), initializer="zeros", trainable=False)
        super().build(input_shape)

    def call(self, inputs, training=False):
        mean = tf.reduce_mean(inputs, axis=tuple(range(1, len(inputs.shape))))[:, None]
        if self._start is None:
            return mean
        if training and self._statistics:
            self.steps.assign_add([1.0])
        return mean + self.shift


def training_spec(
    monkeypatch,
    name,
    u,
    v=None,
    *,
    rate,
    epochs=1,
    clients=2,
    sizes=None,
    momentum=0.0,
    decay=0.0,
    statistics=True,
    **options,
):
    """The training spec of a method on parabolas.

    Without `v` the head has no variable; without `statistics` nothing counts the steps.
    """
    sizes = [_NUM_CLASSES] * clients if sizes is None else sizes

    def backbone():
        inputs = tf.keras.Input((1, 1, 1))
        return tf.keras.Model(inputs, Shift(u, statistics)(inputs))

    def squared(labels, outputs):
        return 0.5 * tf.reduce_mean(tf.square(outputs[:, 0] - tf.cast(labels, tf.float32)))

    # The method may use what another one, from which it is derived, has imported.
    for place in {sys.modules[base.__module__] for base in methods.get(name).__mro__}:
        monkeypatch.setattr(place, "cross_entropy", squared, raising=False)
        monkeypatch.setattr(place, "linear_head", lambda *_: Shift(v, statistics), raising=False)
    task = methods.TaskSpec(
        num_classes=_NUM_CLASSES,
        feature_dim=1,
        backbone=backbone,
        class_counts=np.outer(sizes, np.ones(_NUM_CLASSES) / _NUM_CLASSES),
        cohort_size=len(sizes),
    )
    spec = data.InputSpec("image", (1, 1, 1), "float32")
    method = methods.create(name, **options)
    optimizer = SGD(learning_rate=rate, momentum=momentum, weight_decay=decay, clip_norm=0.0)
    return TrainingSpec(method, task, spec, optimizer, epochs, batch_size=3)


def samples(b: int, size: int):
    """A client's samples, with the minimum of its parabola at b."""
    return {"x": tf.zeros([size, 1, 1, 1]), "y": tf.fill([size], b)}


class Federation(AnyFederation):
    """Rounds on parabolas with the given minima."""

    def __init__(self, spec, minima, sizes=None, traced=True):
        sizes = sizes or [2] * len(minima)
        parts = [samples(b, n) for b, n in zip(minima, sizes, strict=True)]
        super().__init__(spec, parts, traced)

    @property
    def weights(self):
        """The shared trained numbers."""
        return [float(value[0]) for value in self.server.weights["trainable"]]

    @property
    def steps(self):
        """The mean number of training steps, a shared statistic."""
        return float(self.server.weights["statistics"][0][0])

    @property
    def locals(self):
        """What the last cohort's clients sent as their changes of the shared numbers."""
        return [[float(delta[0]) for delta in sent["update"].trainable] for sent in self.results]

    def own(self, client):
        """The numbers that a client keeps: first those that it trains, then its statistics."""
        return [float(value[0]) for value in self.state(client).personal]

    def kept(self, client):
        """The number that a client keeps: of its own tensors, or its own model."""
        state = self.state(client)
        names = ("dual", "drift", "control", "theta")
        values = [state.own[name] for name in names if name in state.own]
        (first, *_) = [*values, state.personal]
        return float(first[0][0])

    def personal_number(self, client):
        """What a client's personal model answers after its local epochs."""
        return float(self.personal_logits(client, tf.zeros([1, 1, 1, 1]), tuned=True)[0, 0])
