"""A network of fully connected layers, the cheapest for images: 120 – 84, ReLU, d = 84.

The widths are those behind Simple-CNN's convolutions. A projection takes the place of the layer of
84, as it does there.
"""

import tensorflow as tf

from tff_pcdd.models.registry import dense, project, register


@register("mlp")
def mlp(input_shape: tuple[int, ...], projection_dim: int = 0) -> tf.keras.Model:
    """Fully connected layers for images of any size."""
    inputs = tf.keras.Input(input_shape)
    h = dense(120, activation="relu")(tf.keras.layers.Flatten()(inputs))
    h = project(h, projection_dim) if projection_dim else dense(84, activation="relu")(h)
    return tf.keras.Model(inputs, h, name="mlp")
