"""Small computations that have all parts of this project's rounds, and some that cannot be divided.

A round consists of a broadcast, local training with a client state, an aggregator, and further
sums.
"""

import threading
import time
from collections import OrderedDict

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

FEATURES, CLASSES = 5, 3

_weights_type = tff.to_type(
    OrderedDict(
        kernel=tff.TensorType(np.float32, [FEATURES, CLASSES]),
        bias=tff.TensorType(np.float32, [CLASSES]),
    )
)
_aggregation = tff.aggregators.MeanFactory().create(_weights_type, tff.TensorType(np.float32))
_server_type = tff.to_type(
    OrderedDict(
        weights=_weights_type,
        aggregator=_aggregation.initialize.type_signature.result.member,
        round=np.int32,
    )
)
_state_type = tff.to_type(OrderedDict(own=[tff.TensorType(np.float32, [CLASSES])], rounds=np.int32))
_data_type = tff.to_type(
    OrderedDict(
        examples=OrderedDict(
            x=tff.TensorType(np.float32, [None, FEATURES]), y=tff.TensorType(np.int32, [None])
        ),
        seed=tff.TensorType(np.int32, [2]),
        # Iterations of an empty loop, to give tests time to interfere.
        delay=np.int64,
    )
)


def _train(weights, state, data):
    start = tf.constant(0, tf.int64)
    turns = tf.while_loop(lambda i: i < data["delay"], lambda i: (i + 1,), (start,))[0]
    kernel = weights["kernel"] + 0.0 * tf.cast(turns, tf.float32)
    bias = weights["bias"] + state["own"][0]
    x, y = data["examples"]["x"], tf.one_hot(data["examples"]["y"], CLASSES)
    for _ in range(3):
        error = tf.nn.softmax(x @ kernel + bias) - y
        kernel -= 0.1 * tf.matmul(x, error, transpose_a=True)
        bias -= 0.1 * tf.reduce_sum(error, axis=0)
    kernel += 0.01 * tf.random.stateless_normal(kernel.shape, data["seed"])
    return OrderedDict(
        update=OrderedDict(kernel=kernel - weights["kernel"], bias=bias - weights["bias"]),
        weight=tf.cast(tf.shape(x)[0], tf.float32),
        classes=tf.reduce_sum(y, axis=0),
        state=OrderedDict(own=[bias], rounds=state["rounds"] + 1),
        loss=tf.reduce_sum(error**2),
    )


@tff.tensorflow.computation(_weights_type, _state_type, _data_type)
def _local_training(weights, state, data):
    return tf.function(_train)(weights, state, data)


@tff.tensorflow.computation(_server_type)
def _message(server):
    return server["weights"]


@tff.tensorflow.computation(_server_type, _weights_type, _server_type["aggregator"])
def _server_update(server, change, aggregator):
    return OrderedDict(
        weights=tf.nest.map_structure(lambda a, b: a + b, server["weights"], change),
        aggregator=aggregator,
        round=server["round"] + 1,
    )


@tff.tensorflow.computation
def _zeros():
    return OrderedDict(kernel=tf.zeros([FEATURES, CLASSES]), bias=tf.zeros([CLASSES]))


@tff.federated_computation
def initialize():
    return tff.federated_zip(
        OrderedDict(
            weights=tff.federated_eval(_zeros, tff.SERVER),
            aggregator=_aggregation.initialize(),
            round=tff.federated_value(0, tff.SERVER),
        )
    )


@tff.federated_computation(
    tff.FederatedType(_server_type, tff.SERVER),
    tff.FederatedType(_state_type, tff.CLIENTS),
    tff.FederatedType(_data_type, tff.CLIENTS),
)
def next_round(server, states, data):
    weights = tff.federated_broadcast(tff.federated_map(_message, server))
    results = tff.federated_map(_local_training, (weights, states, data))
    mean = _aggregation.next(server["aggregator"], results["update"], results["weight"])
    server = tff.federated_map(_server_update, (server, mean.result, mean.state))
    metrics = OrderedDict(
        classes=tff.federated_sum(results["classes"]),
        loss=tff.federated_sum(results["loss"]),
        clients=tff.federated_sum(tff.federated_value(1, tff.CLIENTS)),
    )
    return server, results["state"], tff.federated_zip(metrics)


@tff.tensorflow.computation(_data_type)
def _count_labels(data):
    return tf.math.bincount(data["examples"]["y"], minlength=CLASSES, dtype=tf.int32)


@tff.federated_computation(
    tff.FederatedType(_server_type, tff.SERVER), tff.FederatedType(_data_type, tff.CLIENTS)
)
def label_shares(server, data):
    """Returns client results only, without any sum."""
    del server
    return tff.federated_map(_count_labels, data)


@tff.tensorflow.computation(np.float32, np.float32)
def squared_difference(a, b):
    return (a - b) ** 2


@tff.federated_computation(tff.FederatedType(np.float32, tff.CLIENTS))
def variance(values):
    """Contains a sum that depends on another sum, so the computation cannot be split."""
    mean = tff.federated_broadcast(tff.federated_mean(values))
    return tff.federated_mean(tff.federated_map(squared_difference, (values, mean)))


@tff.federated_computation(tff.FederatedType(np.int32, tff.CLIENTS))
def secure_sum(values):
    return tff.federated_secure_sum(values, 100)


@tff.tensorflow.computation(np.int32)
def _only_negative(x):
    with tf.control_dependencies([tf.debugging.assert_less(x, 0, message="not this one")]):
        return tf.identity(x)


@tff.federated_computation(tff.FederatedType(np.int32, tff.CLIENTS))
def sum_of_negatives(values):
    return tff.federated_sum(tff.federated_map(_only_negative, values))


@tff.tensorflow.computation(tff.TensorType(np.float32, [2000]))
def _plus_one(x):
    return x + 1


@tff.federated_computation(tff.FederatedType(tff.TensorType(np.float32, [2000]), tff.CLIENTS))
def add_one(values):
    """Returns client results of the type of its argument, like the states of a round."""
    return tff.federated_map(_plus_one, values)


def clients(num_clients: int, delay: int = 0, samples: int = 4):
    """States and data of clients; client i has `samples` + i samples."""
    random = np.random.default_rng(0)
    states = [
        OrderedDict(own=[np.full(CLASSES, i / 10, np.float32)], rounds=np.int32(i))
        for i in range(num_clients)
    ]
    data = [
        OrderedDict(
            examples=OrderedDict(
                x=random.normal(size=(samples + i, FEATURES)).astype(np.float32),
                y=random.integers(CLASSES, size=samples + i).astype(np.int32),
            ),
            seed=np.array([i, 1], np.int32),
            delay=np.int64(delay),
        )
        for i in range(num_clients)
    ]
    return states, data


def while_all_compute(actors, action):
    """Starts a thread that calls `action` as soon as each of the Ray actors has a share.

    A fixed time would not do: on a busy machine, nobody knows how long a share takes.
    """

    def wait():
        while not all(actor.result is not None for actor in actors.all):
            time.sleep(0.01)
        action()

    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    return thread
