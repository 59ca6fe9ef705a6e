"""No network at all: the inputs are the features, for embeddings that a frozen encoder has made.

What is trained is the method's head, and with `projection_dim` a linear layer before it. With
FedAvg, this is a linear probe of the encoder (Alain and Bengio, Understanding intermediate layers
using linear classifier probes, ICLR workshop 2017).
"""

from __future__ import annotations

import dataclasses

from etils import epy

from tff_pcdd.models.backbone import ImageBackbone, registry
from tff_pcdd.models.building import project

with epy.lazy_imports():
    import tensorflow as tf


@registry.register
@dataclasses.dataclass(frozen=True)
class Linear(ImageBackbone):
    """The numbers of a vector, or the pixels of an image, as they are."""

    name = "linear"
    accepts_vectors = True
    has_normalization = False

    def network(self, input_shape: tuple[int, ...], projection_dim: int) -> tf.keras.Model:
        inputs = tf.keras.Input(input_shape)
        h = project(tf.keras.layers.Flatten()(inputs), projection_dim)
        return tf.keras.Model(inputs, h, name=self.name)
