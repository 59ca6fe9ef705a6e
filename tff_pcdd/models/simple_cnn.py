"""Simple-CNN: the small LeNet-like network of the FedGELA and FedMR experiments.

conv 5×5 (6) – pool 2 – conv 5×5 (16) – pool 2 – 120 – 84, ReLU everywhere; the feature is the last
layer after its ReLU, d = 84. Two convolutions without padding need images of at least 16 pixels a
side; for smaller ones the convolutions are padded and the second pooling is left out.

A projection takes the place of the layer of width 84: FedGELA's has the same width by default, but
is linear.
"""

from __future__ import annotations

import dataclasses

from etils import epy

from tff_pcdd.models.backbone import ImageBackbone, registry
from tff_pcdd.models.building import dense, project

with epy.lazy_imports():
    import tensorflow as tf

# The smallest side for which convolutions need no padding, in pixels.
_MIN_UNPADDED_SIDE = 16


def _conv(filters: int, padding: str) -> tf.keras.layers.Conv2D:
    uniform = tf.keras.initializers.VarianceScaling(1 / 3, "fan_in", "uniform")
    return tf.keras.layers.Conv2D(
        filters, 5, padding=padding, activation="relu", kernel_initializer=uniform
    )


@registry.register
@dataclasses.dataclass(frozen=True)
class SimpleCNN(ImageBackbone):
    """Simple-CNN for images of at least 4 pixels a side."""

    name = "simple_cnn"
    min_side = 4

    def network(self, input_shape: tuple[int, ...], projection_dim: int) -> tf.keras.Model:
        small = min(input_shape[:2]) < _MIN_UNPADDED_SIDE
        padding = "same" if small else "valid"
        inputs = tf.keras.Input(input_shape)
        h = tf.keras.layers.MaxPool2D()(_conv(6, padding)(inputs))
        h = _conv(16, padding)(h)
        if not small:
            h = tf.keras.layers.MaxPool2D()(h)
        h = tf.keras.layers.Flatten()(h)
        h = dense(120, activation="relu")(h)
        h = project(h, projection_dim) if projection_dim else dense(84, activation="relu")(h)
        return tf.keras.Model(inputs, h, name=self.name)
