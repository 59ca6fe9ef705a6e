"""Export of a trained model as a `.keras` file, for further use in Keras.

The input is a batch as in the SavedModel's `serving_default`, or `ids` [batch, length] for a text
model. If columns of a table are texts, it is a dictionary of all columns by their names.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import tensorflow as tf

from tff_pcdd import files
from tff_pcdd.data import InputSpec, encoding
from tff_pcdd.export import inputs
from tff_pcdd.export.trained import TrainedModel

FILE = "model.keras"


def write(model: TrainedModel, directory: Path) -> None:
    """Writes a Keras model, as `build` makes it.

    If the network contains layers of this package, run `import tff_pcdd.layers` before loading it.
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
        is_whole = raw.dtype.is_integer
        # Keras converts what it is given to the type of the input: whole numbers would wrap around,
        # and fractions become 0.
        dtype = tf.float32 if is_whole else raw.dtype
        x = tf.keras.Input(raw.shape[1:], dtype=dtype, name=raw.name)
        answers = model.answer(inputs.model_inputs(_whole(x, spec) if is_whole else x, spec))
    return tf.keras.Model(x, answers)


def _whole(x: tf.Tensor, spec: InputSpec) -> tf.Tensor:
    """Pixels or ids, checked to be those of a model when the graph runs."""
    raw = inputs.raw_spec(spec)
    last = (spec.vocabulary_size or raw.dtype.max + 1) - 1
    is_usable = tf.equal(x, tf.floor(x)) & (x >= 0) & (x <= last)
    # Not a check by itself, which Keras' file would not keep: x/0 is not finite.
    message = f"{raw.name}: a value is not a whole number from 0 to {last};"
    checked = tf.debugging.check_numerics(x / tf.cast(is_usable, tf.float32), message)
    return tf.cast(checked, raw.dtype)


def _codes(texts: tf.Tensor, column: encoding.Column) -> tf.Tensor:
    """As `inputs.codes`, by a layer, since Keras cannot save constant texts outside of layers."""
    known = [*(column.categories or ()), *column.missing]
    # Keras' own token for unknown texts may be a category; no stripped text is this one.
    lookup = tf.keras.layers.StringLookup(vocabulary=known, num_oov_indices=1, oov_token="\n")
    numbers = [-1, *column.codes, *[np.nan] * len(column.missing)]
    return tf.gather(tf.constant(numbers, tf.float32), lookup(inputs.tidied(texts)))
