"""A federation of the package on the network of `numpy_network`, with that module's names."""

import contextlib
from unittest import mock

import numpy as np
import tensorflow as tf

from tests import support
from tests.methods import numpy_network
from tests.methods.federation import Federation
from tff_pcdd import data, layers, methods
from tff_pcdd.draws import fold_in
from tff_pcdd.federated import SGD, TrainingSpec, local_training

# Names of the package's pieces in the oracle: kernel and bias of dense layers, in order.
PIECES = {
    "backbone": [*numpy_network.BACKBONE, *numpy_network.STATISTICS],
    "head": numpy_network.HEAD,
    "psi": numpy_network.HEAD,
    "phi": ["V", "c"],
    "personal_head": ["V", "c"],
    "projection": ["P", "p", "Q", "q"],
    "temperature": ["s"],
    "frame": ["F"],
    "share": ["alpha"],
    "weights": [f"u_{name}" for name in (*numpy_network.BACKBONE, *numpy_network.HEAD)],
    "previous": [f"previous_{name}" for name in (*numpy_network.BACKBONE, *numpy_network.HEAD)],
}


class _InOrder(Federation):
    """A federation whose clients take their samples in the order in which they are stored."""

    @contextlib.contextmanager
    def _mode(self):
        with super()._mode(), mock.patch.object(local_training, "_order", _stored_order):
            yield


def _stored_order(num_samples, phase_seed, epoch):
    return tf.range(num_samples), fold_in(phase_seed, epoch)


def _server_samples(number):
    x, labels = numpy_network.server_samples(number)
    return x.reshape(-1, 1, 1, numpy_network.INPUTS), labels


def network_federation(name, **options):
    """A federation of a method with the inputs, sizes and settings of `numpy_network`."""
    oracle = numpy_network

    def backbone():
        inputs = tf.keras.Input((1, 1, oracle.INPUTS))
        h = tf.keras.layers.Dense(oracle.WIDTH, "tanh")(tf.keras.layers.Flatten()(inputs))
        return tf.keras.Model(inputs, layers.BatchNormalization()(h))

    task = methods.TaskSpec(
        num_classes=oracle.CLASSES,
        feature_dim=oracle.WIDTH,
        backbone=backbone,
        class_counts=np.stack([oracle.counts(k) for k in oracle.EVERYBODY]),
        num_rounds=oracle.ROUNDS,
        cohort_size=3,
        server_samples=_server_samples,
    )
    if name in ("moon", "fedproc"):
        options["projection_width"] = 5
    spec = TrainingSpec(
        **support.composed(name, **options),
        task=task,
        input_spec=data.InputSpec("image", (1, 1, oracle.INPUTS), "float32"),
        optimizer=SGD(oracle.RATE, oracle.MOMENTUM, oracle.DECAY, clip_norm=0.0),
        local_epochs=oracle.EPOCHS,
        batch_size=oracle.BATCH,
    )
    parts = [
        {
            "x": tf.reshape(oracle.inputs(k), [-1, 1, 1, oracle.INPUTS]),
            "y": tf.constant(oracle.LABELS[k], tf.int32),
        }
        for k in oracle.EVERYBODY
    ]
    return _InOrder(spec, parts)


def _names(net):
    """The oracle's name of each variable of a network."""
    names = {}
    for part, layer in net.parts.items():
        prefix, known = "", part
        for start in ("own_", "previous_", "global_", "received_"):
            if part.startswith(start):
                prefix, known = start, part.removeprefix(start)
        wanted = PIECES.get(known, [])
        if known == "head" and len(layer.weights) == 1:
            wanted = ["F"]
        if known == "projection":
            wanted = wanted[: len(layer.weights)]
        if known in ("weights", "previous"):
            wanted = wanted[-len(layer.weights) :]
        for name, variable in zip(wanted, layer.weights, strict=True):
            names[variable.ref()] = prefix + name
    return names


def placed(federation):
    """The oracle's names of the server's and of a client's variables, as states have them."""
    net = federation.spec.network()
    names = _names(net)
    groups = {
        "trainable": net.shared.trainable,
        "statistics": net.shared.statistics,
        "mirrored": net.mirrored.all,
        "fixed": net.fixed,
    }
    server = {group: [names[v.ref()] for v in group_] for group, group_ in groups.items()}
    return server, [names[v.ref()] for v in net.kept]


def server_values(federation, names):
    """The server's weights by the oracle's names."""
    return {
        name: value.numpy().astype(np.float64)
        for group, wanted in names.items()
        for name, value in zip(wanted, federation.server.weights[group], strict=True)
    }


def own_values(federation, names, client):
    """What a client keeps by the oracle's names."""
    values = federation.state(client).personal
    return {n: v.numpy().astype(np.float64) for n, v in zip(names, values, strict=True)}
