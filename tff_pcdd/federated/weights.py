"""A network's variables as tensors that are sent between server and clients.

Weights are an ordered dict of lists of tensors, by placement:

    {"trainable": [...], "statistics": [...], "mirrored": [...], "fixed": [...]}
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from tff_pcdd.methods.network import Network, assign, read


class WeightsChange(NamedTuple):
    """The change of the averaged weights, of one client or of a cohort.

    Statistics, such as moving variances, are apart from the rest because they are averaged apart:
    their changes have another scale, and neither noise nor a common clip suits them.

    Attributes:
        trainable: change of the shared trainable variables, as `Method.update` returns it.
        mirrored: change of the mirrored trainable variables.
        statistics: change of the shared and then of the mirrored statistics.
    """

    trainable: Sequence[tf.Tensor]
    mirrored: Sequence[tf.Tensor]
    statistics: Sequence[tf.Tensor]


def variables_of(net: Network) -> OrderedDict[str, list[tf.Variable]]:
    """The variables of a network that the server has, by placement."""
    return OrderedDict(
        trainable=net.shared.trainable,
        statistics=net.shared.statistics,
        mirrored=net.mirrored.all,
        fixed=net.fixed,
    )


def weights_of(net: Network) -> OrderedDict[str, list[tf.Tensor]]:
    """The weights of a network: the values of all variables that the server has."""
    return OrderedDict((name, read(group)) for name, group in variables_of(net).items())


def load(
    net: Network,
    weights: Mapping[str, Sequence[tf.Tensor]],
    personal: Sequence[tf.Tensor] | None = None,
) -> None:
    """Sets a network's variables.

    Args:
        net: the network.
        weights: as `weights_of` returns them.
        personal: values of the variables that a client keeps (`Network.kept`); None leaves the
            personal variables unchanged and the mirrored ones as in `weights`.
    """
    for name, variables in variables_of(net).items():
        assign(variables, weights[name])
    if personal is not None:
        assign(net.kept, personal)


def add(values: Sequence[tf.Tensor], changes: Sequence[tf.Tensor]) -> list[tf.Tensor]:
    """Adds its change to each value."""
    return [value + change for value, change in zip(values, changes, strict=True)]


def subtract(
    values: Sequence[tf.Tensor | tf.Variable], others: Sequence[tf.Tensor]
) -> list[tf.Tensor]:
    """Subtracts the other value at the same position from each value."""
    return [value - other for value, other in zip(values, others, strict=True)]


def can_be_summed(values: Any) -> tf.Tensor:
    """Whether the L2 norm of all floats in a nested structure is finite, a bool scalar.

    No float is NaN or infinite then, and none is so large that the norm by which an aggregator
    clips or the sum over a cohort would become infinite: the limit of the norm is about 1.8e19.
    """
    squares = [tf.cast(tf.nn.l2_loss(v), tf.float32) for v in _floats(values)]
    # Not tf.add_n: TensorFlow may compute it in a buffer with a fixed name, for which clients that
    # run at the same time compete.
    return tf.math.is_finite(tf.reduce_sum(tf.stack([tf.constant(0.0), *squares])))


def all_finite(values: Any) -> tf.Tensor:
    """Whether no float in a nested structure is NaN or infinite, a bool scalar."""
    return tf.reduce_all([True, *(tf.reduce_all(tf.math.is_finite(v)) for v in _floats(values))])


def _floats(values: Any) -> list[tf.Tensor]:
    tensors = map(tf.convert_to_tensor, tf.nest.flatten(values))
    return [tensor for tensor in tensors if tensor.dtype.is_floating]
