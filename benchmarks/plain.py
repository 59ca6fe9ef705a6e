"""The reference: a round of FedAvg in plain TensorFlow, without TFF."""

from __future__ import annotations

import itertools

import tensorflow as tf

from tff_pcdd import data
from tff_pcdd.data import transforms
from tff_pcdd.federated import TrainingSpec, initialization
from tff_pcdd.methods import cross_entropy
from tff_pcdd.methods.network import Network


def keras_model(spec: TrainingSpec) -> tf.keras.Model:
    """FedAvg's network as a single Keras model, with the same initial values."""
    with initialization.deferred() as first:
        net = spec.network()
    first.assign(net.parts, spec.task.seed)
    return in_one(net)


def in_one(net: Network) -> tf.keras.Model:
    """The backbone and the head of a network as a single Keras model."""
    backbone = net["backbone"]
    return tf.keras.Model(backbone.inputs, net["head"](backbone.output))


def dataset_of(examples: data.Examples, spec: TrainingSpec) -> tf.data.Dataset:
    """The batches (inputs, labels) of a client in a round, reshuffled in every epoch."""
    return (
        tf.data.Dataset.from_tensor_slices((examples.x, examples.y))
        .shuffle(len(examples))
        .batch(spec.batch_size)
        .repeat(spec.local_epochs)
        .map(lambda x, y: (transforms.normalize(x, spec.input_spec), y))
    )


class PlainLoop:
    """Trains clients in turn with one Keras model, one `tf.function` and reused data pipelines."""

    def __init__(self, spec: TrainingSpec, clients: list[data.Examples]):
        self._model = keras_model(spec)
        self._input_spec = spec.input_spec
        self._optimizer = spec.optimizer
        variables = self._model.trainable_variables
        self._accumulators = [self._optimizer.accumulators(variable) for variable in variables]
        self._clients = [(len(c), dataset_of(c, spec).prefetch(tf.data.AUTOTUNE)) for c in clients]
        self.weights = [tf.identity(v) for v in self._model.variables]
        # Traced now: a Keras model stops working once another one is created in a TF1 graph, and
        # TFF creates all of its models there.
        self._update.get_concrete_function(self.weights, self._clients[0][1])

    def next(self) -> None:
        """Computes a round."""
        results = [self._update(self.weights, dataset) for _, dataset in self._clients]
        sizes = tf.constant([float(size) for size, _ in self._clients])
        self.weights = self._mean([weights for weights, _ in results], sizes)
        tf.nest.map_structure(lambda tensor: tensor.numpy(), results[-1][1])

    def accuracy(self, examples: data.Examples) -> float:
        """Share of correctly classified samples."""
        return float(self._evaluate(self.weights, examples.x, examples.y))

    @tf.function
    def _evaluate(self, weights, x, y):
        for variable, value in zip(self._model.variables, weights, strict=True):
            variable.assign(value)
        logits = self._model(transforms.normalize(x, self._input_spec), training=False)
        predicted = tf.argmax(logits, axis=1, output_type=tf.int32)
        return tf.reduce_mean(tf.cast(predicted == y, tf.float32))

    @tf.function(reduce_retracing=True)
    def _update(self, weights, dataset):
        """The weights of a client after training, and the sum of its losses."""
        model, variables = self._model, self._model.trainable_variables
        for variable, value in zip(model.variables, weights, strict=True):
            variable.assign(value)
        for accumulator in itertools.chain(*self._accumulators):
            accumulator.assign(tf.zeros_like(accumulator))
        total = 0.0
        # Without `iter`, the loop would become `Dataset.reduce`, which takes twice as long.
        for x, y in iter(dataset):
            with tf.GradientTape() as tape:
                loss = cross_entropy(y, model(x, training=True))
            gradients = tape.gradient(loss, variables)
            self._optimizer.apply(gradients, variables, self._accumulators)
            total += loss
        return [tf.identity(v) for v in model.variables], total

    @tf.function
    def _mean(self, results, sizes):
        shares = tf.unstack(sizes / tf.reduce_sum(sizes))
        return [
            tf.add_n([value * share for value, share in zip(values, shares, strict=True)])
            for values in zip(*results, strict=True)
        ]
