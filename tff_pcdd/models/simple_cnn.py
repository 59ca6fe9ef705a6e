"""Simple-CNN: the small LeNet-like network of the FedGELA and FedMR experiments.

conv 5×5 (6) – pool 2 – conv 5×5 (16) – pool 2 – 120 – 84, ReLU everywhere; the feature is the last
layer after its ReLU, d = 84. For images under 16 pixels a side, of which two unpadded convolutions
would leave nothing, the convolutions are padded and the second pooling is left out.

A projection takes the place of the layer of 84: it is as wide as FedGELA's, and linear.
"""

import tensorflow as tf

from tff_pcdd.models.registry import dense, project, register
from tff_pcdd.options import OptionError

_SMALLEST_FULL = 16


def _conv(filters: int, padding: str) -> tf.keras.layers.Conv2D:
    uniform = tf.keras.initializers.VarianceScaling(1 / 3, "fan_in", "uniform")
    return tf.keras.layers.Conv2D(
        filters, 5, padding=padding, activation="relu", kernel_initializer=uniform
    )


@register("simple_cnn")
def simple_cnn(input_shape: tuple[int, ...], projection_dim: int = 0) -> tf.keras.Model:
    """Simple-CNN for images [height, width, channels] of at least 4 pixels a side."""
    if len(input_shape) != 3 or min(input_shape[:2]) < 4:
        raise OptionError(
            f"--model=simple_cnn: needs images of at least 4×4 pixels, the data has {input_shape}"
        )
    small = min(input_shape[:2]) < _SMALLEST_FULL
    padding = "same" if small else "valid"
    inputs = tf.keras.Input(input_shape)
    h = tf.keras.layers.MaxPool2D()(_conv(6, padding)(inputs))
    h = _conv(16, padding)(h)
    if not small:
        h = tf.keras.layers.MaxPool2D()(h)
    h = tf.keras.layers.Flatten()(h)
    h = dense(120, activation="relu")(h)
    h = project(h, projection_dim) if projection_dim else dense(84, activation="relu")(h)
    return tf.keras.Model(inputs, h, name="simple_cnn")
