"""A trained model as a `.keras` file, for those who go on with it in Keras."""

from __future__ import annotations

from pathlib import Path

import tensorflow as tf

from tff_pcdd.data import preprocessing
from tff_pcdd.export import inputs
from tff_pcdd.export.trained import TrainedModel

FILE = "model.keras"


def write(model: TrainedModel, directory: Path) -> None:
    """Writes the model from raw inputs to `TrainedModel.answer`, made of its own Keras layers.

    Loading wants this package where one of its layers is in the network
    (`import tff_pcdd.layers`).
    """
    raw = inputs.raw_spec(model.input_spec)
    x = tf.keras.Input(raw.shape[1:], dtype=raw.dtype, name=raw.name)
    answers = model.answer(preprocessing.normalize(x, model.input_spec))
    tf.keras.Model(x, answers).save(directory / FILE)
