"""Export of a trained model as a SavedModel, which can be loaded without this package.

| signature | input | shape and type |
|---|---|---|
| `serving_default` | `images` | [batch, height, width, channels], pixels as stored |
| | `features` (for vectors) | [batch, numbers]; of a table [batch, columns] |
| | `texts` (for text models) | [batch], UTF-8 strings |
| `serving_columns` | each column of a table by its name | [batch], numbers or UTF-8 strings |
| `serving_bytes` | `image_bytes` | [batch], contents of image files: JPEG, PNG or BMP |

Photos are turned upright, as their EXIF orientation says. Other files, PNGs of 16 bits where the
training images had 8, and the reverse, are refused by what they are.

A batch of another shape, and numbers that are NaN or infinite, are refused when the graph runs, and
so are unknown categories. Categories are given as in the table, but as numbers in `features`: the
codes in columns.json stand for texts. In columns whose missing values are replaced, NaN stands for
a missing number, and the empty text for a missing text.

The outputs are those of `TrainedModel.answer`, plus the class names as `label` and `own_label` and,
for a table with columns of numbers, `out_of_range`: the columns whose numbers lie outside of what
was seen in training.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import tensorflow as tf

from tff_pcdd import files
from tff_pcdd.data.input_spec import TEXT, VECTOR
from tff_pcdd.export import columns, inputs
from tff_pcdd.export.trained import TrainedModel


def write(
    model: TrainedModel,
    directory: Path,
    ranges: Mapping[str, tuple[np.float32, np.float32]] | None = None,
) -> None:
    """Writes the model to a directory; `ranges` are from `columns.ranges`, for a table."""
    module = tf.Module()
    # Only variables are tracked. Keras layers would be saved too, and be required for loading.
    module.model_variables = model.network.variables
    signatures = {
        name: function.get_concrete_function()
        for name, function in _signatures(model, ranges or {}).items()
    }
    with files.writing(directory, tf.errors.OpError):
        tf.saved_model.save(module, str(directory), signatures=signatures)


def _signatures(
    model: TrainedModel, ranges: Mapping[str, tuple[np.float32, np.float32]]
) -> dict[str, tf.types.experimental.GenericFunction]:
    spec = model.input_spec
    names = tf.constant(model.class_names)
    traced = functools.partial(tf.function, autograph=model.network.autograph)

    def answer(x, values=()):
        answers = model.answer(x)
        for key in [key for key in answers if key.endswith("class_id")]:
            answers[key.replace("class_id", "label")] = tf.gather(names, answers[key])
        if ranges:
            answers["out_of_range"] = inputs.out_of_range(values, ranges, spec)
        return answers

    @traced(input_signature=[tf.TensorSpec([None], tf.string, name="texts")])
    def of_texts(texts):
        return answer(inputs.from_text(tf.ensure_shape(texts, [None]), spec))

    @traced(input_signature=[inputs.raw_spec(spec)])
    def of_stored(stored):
        values = tf.unstack(stored, axis=1) if ranges else ()
        return answer(inputs.model_inputs(stored, spec), values)

    by_input = columns.by_input(spec)

    @traced(
        input_signature=[
            {
                name: tf.TensorSpec([None], inputs.column_type(column), name=name)
                for name, column in by_input.items()
            }
        ]
    )
    def of_columns(given):
        values = [
            inputs.codes(given[name], column) if column.is_text else given[name]
            for name, column in by_input.items()
        ]
        return answer(inputs.from_columns(values, spec), values)

    @traced(input_signature=[tf.TensorSpec([None], tf.string, name="image_bytes")])
    def of_files(image_bytes):
        return answer(inputs.from_image_files(tf.ensure_shape(image_bytes, [None]), spec))

    if spec.kind == TEXT:
        return {"serving_default": of_texts}
    if by_input:
        return {"serving_default": of_stored, "serving_columns": of_columns}
    if spec.kind == VECTOR or not spec.has_white:
        return {"serving_default": of_stored}
    return {"serving_default": of_stored, "serving_bytes": of_files}
