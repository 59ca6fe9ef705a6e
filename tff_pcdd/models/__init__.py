"""Backbones: Keras models from a normalised input to features [batch, d].

    model = tff_pcdd.models.build("resnet18", input_shape=(32, 32, 3))
    model.output_shape    # (None, 512)

A backbone of your own: decorate a function `(input_shape) -> tf.keras.Model` with `register`.
"""

from tff_pcdd.models.registry import build, names, register

__all__ = ["build", "names", "register"]
