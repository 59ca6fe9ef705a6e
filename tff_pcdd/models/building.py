"""Layers that several backbones are built from."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from etils import epy

with epy.lazy_imports():
    import tensorflow as tf

    from tff_pcdd import layers

_MAX_GROUPS = 32


def dense(units: int, **options: Any) -> tf.keras.layers.Dense:
    """A fully connected layer, initialized as in the papers' networks.

    Args:
        units: width of the output.
        **options: further arguments of `tf.keras.layers.Dense`.

    Returns:
        The layer; its weights start uniformly distributed in ±1/sqrt(fan_in), its biases at 0.
    """
    uniform = tf.keras.initializers.VarianceScaling(1 / 3, "fan_in", "uniform")
    return tf.keras.layers.Dense(units, kernel_initializer=uniform, **options)


def project(features: tf.Tensor, projection_dim: int) -> tf.Tensor:
    """Appends a linear layer named "projection".

    Args:
        features: Keras tensor [batch, d].
        projection_dim: width of the layer; 0 for no layer.

    Returns:
        Keras tensor [batch, projection_dim], float32 in every precision, or `features` unchanged
        for width 0.
    """
    if not projection_dim:
        return features
    return dense(projection_dim, name="projection", dtype="float32")(features)


def normalize(x: tf.Tensor, normalization: str = "batch", *, momentum: float = 0.9) -> tf.Tensor:
    """Appends a batch or group normalization layer.

    Args:
        x: Keras tensor [batch, height, width, channels].
        normalization: "batch" or "group".
        momentum: share of the old moving average that a step of batch normalization keeps.

    Returns:
        Keras tensor of the same shape.
    """
    if normalization == "group":
        groups = number_of_groups(x.shape[-1])
        return group_normalization(groups)(x)
    return layers.BatchNormalization(momentum=momentum)(x)


def group_normalization(groups: int, **options: Any) -> tf.keras.layers.GroupNormalization:
    """A group normalization layer, which computes in float32 in every precision.

    Keras' layer would round means and variances to bfloat16. That of batches does not.

    Args:
        groups: number of groups.
        **options: further arguments of `tf.keras.layers.GroupNormalization`.
    """
    return tf.keras.layers.GroupNormalization(groups, epsilon=1e-5, dtype="float32", **options)


def average(x: tf.Tensor) -> tf.Tensor:
    """Appends global average pooling, which computes in float32 in every precision.

    Args:
        x: Keras tensor [batch, height, width, channels].

    Returns:
        Keras tensor [batch, channels], float32.
    """
    return tf.keras.layers.GlobalAveragePooling2D(dtype="float32")(x)


def number_of_groups(channels: int) -> int:
    """The number of groups for group normalization: the largest divisor of `channels` up to 32.

    Group Normalization; Y. Wu, K. He; ECCV 2018.
    """
    return max(n for n in range(1, _MAX_GROUPS + 1) if channels % n == 0)


def each_new(note: Callable[[tf.Variable], None]) -> AbstractContextManager[None]:
    """Calls `note` with each variable as soon as it is made."""

    def create(next_creator, **kwargs):
        variable = next_creator(**kwargs)
        note(variable)
        return variable

    return tf.variable_creator_scope(create)
