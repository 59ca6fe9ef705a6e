"""A network of fully connected layers for images or vectors, the cheapest one: 120 – 84, d = 84.

The widths are those of Simple-CNN's fully connected layers. As in Simple-CNN, a projection takes
the place of the layer of width 84.
"""

from __future__ import annotations

import dataclasses

from etils import epy

from tff_pcdd.models.backbone import ImageBackbone, registry
from tff_pcdd.models.building import dense, project

with epy.lazy_imports():
    import tensorflow as tf


@registry.register
@dataclasses.dataclass(frozen=True)
class MLP(ImageBackbone):
    """Fully connected layers for images of any size, and for vectors."""

    name = "mlp"
    accepts_vectors = True
    has_normalization = False

    def network(self, input_shape: tuple[int, ...], projection_dim: int) -> tf.keras.Model:
        inputs = tf.keras.Input(input_shape)
        h = dense(120, activation="relu")(tf.keras.layers.Flatten()(inputs))
        h = project(h, projection_dim) if projection_dim else dense(84, activation="relu")(h)
        return tf.keras.Model(inputs, h, name=self.name)
