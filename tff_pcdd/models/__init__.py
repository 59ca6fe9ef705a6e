"""Backbones: Keras models from a normalized input to features [batch, d].

    backbone = models.create("resnet18", normalization="group")
    model = backbone.build((32, 32, 3), projection_dim=84)
    model.output_shape    # (None, 84)

Each backbone is a component whose options are settings.

A backbone of your own is either a function wrapped in `KerasBackbone`, for use from Python, or a
registered subclass of `ImageBackbone` or `TextBackbone`, which can be chosen by its name:

    @models.register
    @dataclasses.dataclass(frozen=True)
    class Tiny(models.ImageBackbone):
        name = "tiny"
        width: int = option(64, "Width of the hidden layer.", minimum=1)

        def network(self, input_shape, projection_dim):
            inputs = tf.keras.Input(input_shape)
            h = tf.keras.layers.Flatten()(inputs)
            h = models.dense(self.width, activation="relu")(h)
            return tf.keras.Model(inputs, models.project(h, projection_dim), name=self.name)

Use `tff_pcdd.layers.StatelessDropout` for dropout: Keras' own layer draws from TensorFlow's global
random state, so training would no longer be a function of the seed.
"""

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

register = registry.register
names = registry.names
get = registry.get
create = registry.create


__all__ = [
    "Backbone",
    "ImageBackbone",
    "KerasBackbone",
    "ModelConfig",
    "NormalizationOption",
    "TextBackbone",
    "average",
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
