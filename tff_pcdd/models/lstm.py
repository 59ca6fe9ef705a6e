"""Two LSTM layers that predict the next character of a text.

LEAF: A Benchmark for Federated Settings; S. Caldas et al.; 2018; with the sizes of its network for
Shakespeare: an embedding of width 8 per character and two layers of 256 cells; the feature is the
second layer's last hidden state, d = 256. An id beyond LEAF's alphabet stands for every other
character and has an embedding of its own.

The embedding starts from the standard normal distribution. With LEAF's uniform ±0.26, or Keras'
±0.05, the LSTM's inputs are so small that the network predicts only character frequencies for
longer: after 400 steps on Shakespeare (batches of 16, learning rate 0.8) the loss is 3.2 instead of
3.0.
"""

from __future__ import annotations

import dataclasses

from etils import epy

from tff_pcdd.models.backbone import TextBackbone, registry
from tff_pcdd.models.building import project

with epy.lazy_imports():
    import tensorflow as tf

_EMBEDDING, _CELLS = 8, 256


@registry.register
@dataclasses.dataclass(frozen=True)
class LSTM(TextBackbone):
    """The LSTM for ids [batch, length] below the vocabulary's size."""

    name = "lstm"
    has_normalization = False

    def network(
        self, input_shape: tuple[int, ...], projection_dim: int, vocabulary_size: int
    ) -> tf.keras.Model:
        inputs = tf.keras.Input(input_shape, dtype="int32")
        normal = tf.keras.initializers.RandomNormal(stddev=1.0)
        embedding = tf.keras.layers.Embedding(
            vocabulary_size, _EMBEDDING, embeddings_initializer=normal
        )
        h = embedding(inputs)
        h = tf.keras.layers.LSTM(_CELLS, return_sequences=True)(h)
        h = tf.keras.layers.LSTM(_CELLS)(h)
        return tf.keras.Model(inputs, project(h, projection_dim), name=self.name)
