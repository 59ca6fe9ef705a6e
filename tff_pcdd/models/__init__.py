"""Backbones: Keras models from a normalised input to features [batch, d].

    model = tff_pcdd.models.build("resnet18", input_shape=(32, 32, 3))
    model.output_shape    # (None, 512)

A backbone of your own: decorate `(input_shape, projection_dim) -> tf.keras.Model` with `register`.
"""

from tff_pcdd.models.registry import build, dense, names, project, register

__all__ = ["build", "dense", "names", "project", "register"]
