"""Backbones: Keras models from a normalized input to features [batch, d].

    model = models.build("resnet18", (32, 32, 3))
    model.output_shape    # (None, 512)

Each backbone is a component whose options are settings:

    backbone = models.create("resnet18", normalization="group")
    model = backbone.build((32, 32, 3), projection_dim=84)

A backbone of your own is either a function wrapped in `KerasBackbone`, for use from Python, or a
registered subclass of `ImageBackbone` or `TextBackbone`, which can be chosen by its name:

    @models.register
    @dataclasses.dataclass(frozen=True)
    class Tiny(models.ImageBackbone):
        name = "tiny"
        width: int = option(64, "Width of the hidden layer.", minimum=1, group="Model")

        def network(self, input_shape, projection_dim):
            inputs = tf.keras.Input(input_shape)
            h = tf.keras.layers.Flatten()(inputs)
            h = models.dense(self.width, activation="relu")(h)
            return tf.keras.Model(inputs, models.project(h, projection_dim), name=self.name)

Use `tff_pcdd.layers.StatelessDropout` for dropout: Keras' own layer draws from TensorFlow's global
random state, so training would no longer be a function of the seed.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from etils import epy

from tff_pcdd.models.backbone import (
    Backbone,
    ImageBackbone,
    NormalizationOption,
    TextBackbone,
    registry,
)
from tff_pcdd.models.building import (
    average,
    dense,
    group_normalization,
    normalize,
    number_of_groups,
    project,
)
from tff_pcdd.models.config import ModelConfig
from tff_pcdd.models.keras_backbone import KerasBackbone

with epy.lazy_imports():
    import tensorflow as tf

register = registry.register
names = registry.names
get = registry.get
create = registry.create


def build(
    name: str,
    input_shape: Sequence[int],
    *,
    projection_dim: int = 0,
    vocabulary_size: int | None = None,
    normalization: str | None = None,
    weights: Sequence[np.ndarray] | None = None,
    precision: str = "float32",
) -> tf.keras.Model:
    """Builds a registered backbone with fresh variables.

    Args:
        name: one of `names()`.
        input_shape: shape of one input, (height, width, channels) of images or (length,) of text.
        projection_dim: width of a linear layer at the end; 0 for none.
        vocabulary_size: number of different ids in text; None for images.
        normalization: "batch" or "group", for backbones with normalization layers; None for the
            backbone's default.
        weights: initial values of the backbone's variables, see `Backbone.build`.
        precision: "float32", "tf32" or "bfloat16", which the backbone computes in.

    Returns:
        A Keras model from float32 images or int32 ids [batch, *input_shape] to features, float32
        [batch, d].

    Raises:
        SettingError: the name is unknown, or the backbone does not take such inputs or has no
            normalization layers.
    """
    options = {} if normalization is None else {"normalization": normalization}
    return create(name, **options).build(
        input_shape,
        projection_dim=projection_dim,
        vocabulary_size=vocabulary_size,
        weights=weights,
        precision=precision,
    )


__all__ = [
    "Backbone",
    "ImageBackbone",
    "KerasBackbone",
    "ModelConfig",
    "NormalizationOption",
    "TextBackbone",
    "average",
    "build",
    "create",
    "dense",
    "get",
    "group_normalization",
    "names",
    "normalize",
    "number_of_groups",
    "project",
    "register",
    "registry",
]
