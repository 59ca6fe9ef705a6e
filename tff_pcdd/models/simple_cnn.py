"""Simple-CNN: the small LeNet-like network of the FedGELA and FedMR experiments.

conv 5×5 (6) – pool 2 – conv 5×5 (16) – pool 2 – 120 – 84, ReLU everywhere; the feature is the last
layer after its ReLU, d = 84. Images under 16 pixels a side are padded in the convolutions, since
two unpadded 5×5 convolutions and poolings would leave nothing of them.
"""

import tensorflow as tf

from tff_pcdd.models.registry import dense, register
from tff_pcdd.options import OptionError

_SMALLEST_UNPADDED = 16


def _conv(filters: int, padding: str) -> tf.keras.layers.Conv2D:
    uniform = tf.keras.initializers.VarianceScaling(1 / 3, "fan_in", "uniform")
    return tf.keras.layers.Conv2D(
        filters, 5, padding=padding, activation="relu", kernel_initializer=uniform
    )


@register("simple_cnn")
def simple_cnn(input_shape: tuple[int, ...]) -> tf.keras.Model:
    """Simple-CNN for images [height, width, channels] of at least 4 pixels a side."""
    if len(input_shape) != 3 or min(input_shape[:2]) < 4:
        raise OptionError(
            f"--model=simple_cnn: needs images of at least 4×4 pixels, the data has {input_shape}"
        )
    padding = "same" if min(input_shape[:2]) < _SMALLEST_UNPADDED else "valid"
    layers = tf.keras.layers
    inputs = tf.keras.Input(input_shape)
    h = layers.MaxPool2D()(_conv(6, padding)(inputs))
    h = layers.MaxPool2D()(_conv(16, padding)(h))
    h = layers.Flatten()(h)
    h = dense(120, activation="relu")(h)
    h = dense(84, activation="relu")(h)
    return tf.keras.Model(inputs, h, name="simple_cnn")
