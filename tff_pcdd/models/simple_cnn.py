"""Simple-CNN: the small LeNet-like network of the FedGELA and FedMR experiments.

conv 5×5 (6) – pool 2 – conv 5×5 (16) – pool 2 – 120 – 84, ReLU everywhere; the feature is the last
layer after its ReLU, d = 84. Two convolutions without padding need images of at least 16 pixels a
side; for smaller ones the convolutions are padded and the second pooling is left out.

A projection takes the place of the layer of width 84: FedGELA's has the same width by default, but
is linear.

`simple_cnn_bn` is the same network with a normalization layer between each of these layers, without
its bias, and its ReLU, as residual networks have them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, ClassVar

from etils import epy

from tff_pcdd.models.backbone import ImageBackbone, NormalizationOption, registry
from tff_pcdd.models.building import dense, normalize, project

with epy.lazy_imports():
    import tensorflow as tf

# The smallest side for which convolutions need no padding, in pixels.
_MIN_UNPADDED_SIDE = 16


def _conv(filters: int, **options: Any) -> tf.keras.layers.Conv2D:
    uniform = tf.keras.initializers.VarianceScaling(1 / 3, "fan_in", "uniform")
    return tf.keras.layers.Conv2D(filters, 5, kernel_initializer=uniform, **options)


@registry.register
@dataclasses.dataclass(frozen=True)
class SimpleCNN(ImageBackbone):
    """Simple-CNN for images of at least 4 pixels a side."""

    name = "simple_cnn"
    min_side = 4
    has_normalization: ClassVar[bool | None] = False

    def network(self, input_shape: tuple[int, ...], projection_dim: int) -> tf.keras.Model:
        return self._network(input_shape, projection_dim, None)

    def _network(
        self, input_shape: tuple[int, ...], projection_dim: int, normalization: str | None
    ) -> tf.keras.Model:
        def activated(make: Callable[..., tf.keras.layers.Layer], width: int, **options: Any):
            """A layer with its ReLU, and the normalization layer between them if there is one."""
            if normalization is None:
                return make(width, activation="relu", **options)(h)
            return tf.keras.layers.ReLU()(
                normalize(make(width, use_bias=False, **options)(h), normalization)
            )

        small = min(input_shape[:2]) < _MIN_UNPADDED_SIDE
        padding = "same" if small else "valid"
        inputs = h = tf.keras.Input(input_shape)
        h = tf.keras.layers.MaxPool2D()(activated(_conv, 6, padding=padding))
        h = activated(_conv, 16, padding=padding)
        if not small:
            h = tf.keras.layers.MaxPool2D()(h)
        h = tf.keras.layers.Flatten()(h)
        h = activated(dense, 120)
        h = project(h, projection_dim) if projection_dim else activated(dense, 84)
        return tf.keras.Model(inputs, h, name=self.name)


@registry.register
@dataclasses.dataclass(frozen=True)
class SimpleCNNWithNormalization(NormalizationOption, SimpleCNN):
    """Simple-CNN with normalization layers before its ReLUs."""

    name = "simple_cnn_bn"

    def network(self, input_shape: tuple[int, ...], projection_dim: int) -> tf.keras.Model:
        return self._network(input_shape, projection_dim, self.normalization)
