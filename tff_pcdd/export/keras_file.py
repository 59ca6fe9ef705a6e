"""Export of a trained model as a `.keras` file, for further use in Keras.

The input is a batch as in the SavedModel's `serving_default`, or `ids` [batch, length] for a text
model. If columns of a table are texts, it is a dictionary of all columns by their names.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import tensorflow as tf

from tff_pcdd import files
from tff_pcdd.data import encoding
from tff_pcdd.export import inputs
from tff_pcdd.export.trained import TrainedModel

FILE = "model.keras"


def write(model: TrainedModel, directory: Path) -> None:
    """Writes a Keras model, as `build` makes it.

    If the network contains layers of this package, run `import tff_pcdd.layers` before loading it.

    Raises:
        WriteError: the file cannot be written.
    """
    keras_model = build(model)
    with files.writing(directory / FILE):
        keras_model.save(directory / FILE)


def build(model: TrainedModel) -> tf.keras.Model:
    """A Keras model that maps raw inputs to the results of `TrainedModel.answer`."""
    spec = model.input_spec
    x: tf.Tensor | dict[str, tf.Tensor]
    if any(column.is_text for column in spec.columns or ()):
        x, given = {}, []
        for index, column in enumerate(spec.columns or ()):
            dtype = inputs.column_type(column)
            x[column.name] = values = tf.keras.Input((), dtype=dtype, name=f"column_{index}")
            given.append(_codes(values, column) if column.is_text else values)
        answers = model.answer(inputs.from_columns(given, spec))
    else:
        raw = inputs.raw_spec(spec)
        x = tf.keras.Input(raw.shape[1:], dtype=raw.dtype, name=raw.name)
        answers = model.answer(inputs.model_inputs(x, spec))
    return tf.keras.Model(x, answers)


def _codes(texts: tf.Tensor, column: encoding.Column) -> tf.Tensor:
    """As `inputs.codes`, by a layer, since Keras cannot save constant texts outside of layers."""
    known = [*(column.categories or ()), *column.missing]
    lookup = tf.keras.layers.StringLookup(vocabulary=known, num_oov_indices=1)
    numbers = [-1, *column.codes, *[np.nan] * len(column.missing)]
    return tf.gather(tf.constant(numbers, tf.float32), lookup(tf.strings.strip(texts)))
