"""What a client sends to the server in a round, found without training and without data."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from tff_pcdd.federated.own_code import explained
from tff_pcdd.federated.state import ordered
from tff_pcdd.federated.tracing import function
from tff_pcdd.federated.training_spec import TrainingSpec
from tff_pcdd.methods.network import read
from tff_pcdd.methods.records import Client


class UploadSizes(NamedTuple):
    """What a client sends.

    Attributes:
        trainable: entries of each tensor in the change of the trainable variables.
        statistics: entries of each tensor in the change of the normalization statistics.
        sums: names of the other tensors, of which the server receives the sums.
    """

    trainable: Sequence[int]
    statistics: Sequence[int]
    sums: Sequence[str]


def upload_of(spec: TrainingSpec) -> UploadSizes:
    """What the clients of a method send; takes well below a second, as only `upload` is traced."""
    method, task = spec.method, spec.task
    with explained(method), spec.outline() as net:

        def sums() -> dict[str, Any]:
            counts, seed = tf.zeros([task.num_classes]), tf.zeros([2], tf.int32)
            client = Client(
                class_counts=counts,
                constants=method.constants(counts, task),
                anchor=read(net.shared.trainable),
                state=ordered(method.client_state(net, task, seed)),
                server=ordered(method.broadcast(ordered(method.server_state(net, task)))),
                round=tf.constant(0),
                steps=tf.constant(0),
                seed=seed,
                optimizer=spec.optimizer,
            )
            return dict(method.upload(net, client, lambda function, initial: initial).sums)

        names = sorted(function(sums, net)())
    return UploadSizes(
        _sizes([*net.shared.trainable, *net.mirrored.trainable]),
        _sizes([*net.shared.statistics, *net.mirrored.statistics]),
        names,
    )


def _sizes(variables: Sequence[tf.Variable]) -> list[int]:
    return [math.prod(variable.shape) for variable in variables]
