"""Export of a trained model as a `.keras` file, for further use in Keras."""

from __future__ import annotations

from pathlib import Path

import tensorflow as tf

from tff_pcdd import files
from tff_pcdd.data import transforms
from tff_pcdd.export import inputs
from tff_pcdd.export.trained import TrainedModel

FILE = "model.keras"


def write(model: TrainedModel, directory: Path) -> None:
    """Writes a Keras model that maps stored inputs to the results of `TrainedModel.answer`.

    If the network contains layers of this package, run `import tff_pcdd.layers` before loading it.

    Raises:
        WriteError: the file cannot be written.
    """
    raw = inputs.raw_spec(model.input_spec)
    x = tf.keras.Input(raw.shape[1:], dtype=raw.dtype, name=raw.name)
    checked = inputs.checked(x, model.input_spec)
    answers = model.answer(transforms.normalize(checked, model.input_spec))
    keras_model = tf.keras.Model(x, answers)
    with files.writing(directory / FILE):
        keras_model.save(directory / FILE)
