"""Backbones: Keras models from a normalised input to features [batch, d].

    model = tff_pcdd.models.build("resnet18", input_shape=(32, 32, 3))
    model.output_shape    # (None, 512)

A backbone of your own: decorate `(input_shape, projection_dim) -> tf.keras.Model` with `register`.
Dropout in it is `tff_pcdd.layers.StatelessDropout`: Keras' own draws from TensorFlow's random
state, and training would no longer be a function of the seed.
"""

from tff_pcdd.models.registry import (
    NORMALIZED,
    NORMS,
    PRETRAINED,
    build,
    dense,
    names,
    normalize,
    number_of_groups,
    project,
    read_weights,
    register,
)

__all__ = [
    "NORMALIZED",
    "NORMS",
    "PRETRAINED",
    "build",
    "dense",
    "names",
    "normalize",
    "number_of_groups",
    "project",
    "read_weights",
    "register",
]
