"""A trained model for TensorFlow Lite, as the device that owns a personal model runs it.

Inputs come one at a time: `images` [1, height, width, channels] as the data set stores pixels, or
`ids` [1, length] of a text, whose characters TensorFlow Lite cannot look up with its built-in
operations. Outputs are those of `TrainedModel.answer`; names of the classes are in labels.txt.

An LSTM becomes TensorFlow Lite's own, which carries its state from one call to the next: before
every text the interpreter is told `reset_all_variables()`. Loops without a fused LSTM keep no state
but cannot be calibrated for int8 (the converter of TensorFlow 2.14 crashes).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import tensorflow as tf

from tff_pcdd import data
from tff_pcdd.data import preprocessing
from tff_pcdd.data.federation import TEXT
from tff_pcdd.export import inputs
from tff_pcdd.export.trained import TrainedModel

FLOAT, INT8 = "model.tflite", "model_int8.tflite"


def write(model: TrainedModel, directory: Path, calibration: np.ndarray) -> list[str]:
    """Writes the model in float and in int8, with the names of its classes.

    Args:
        model: the model.
        directory: where the files go.
        calibration: training inputs as they are stored, [n, …], from whose activations the ranges
            of the 8-bit numbers are taken; without any there is no int8 model.

    Returns:
        The names of the models' files.
    """
    written = [FLOAT]
    (directory / FLOAT).write_bytes(_converter(model).convert())
    if len(calibration):
        written.append(INT8)
        converter = _converter(model)
        converter.optimizations = [tf.lite.Optimize.DEFAULT]
        converter.representative_dataset = lambda: (
            [sample] for sample in _samples(calibration, model.input_spec)
        )
        (directory / INT8).write_bytes(converter.convert())
    _write_lines(directory / "labels.txt", model.class_names)
    if model.input_spec.kind == TEXT:
        _write_lines(directory / "vocabulary.txt", model.input_spec.vocabulary)
    return written


def accuracy(path: Path, examples: data.Examples, spec: data.InputSpec) -> float:
    """Share of examples that a written model classifies rightly, in percent; NaN without any."""
    interpreter = tf.lite.Interpreter(str(path))
    interpreter.allocate_tensors()
    run, name = interpreter.get_signature_runner(), inputs.raw_spec(spec).name
    right = 0
    for sample, label in zip(_samples(examples.x, spec), examples.y, strict=True):
        interpreter.reset_all_variables()
        right += run(**{name: sample})["class_id"].item() == label
    return 100 * right / len(examples) if len(examples) else float("nan")


def _converter(model: TrainedModel) -> tf.lite.TFLiteConverter:
    spec = model.input_spec
    raw = inputs.raw_spec(spec, batch=1)

    @tf.function(input_signature=[raw])
    def answer(x):
        return model.answer(preprocessing.normalize(x, spec))

    module = tf.Module()
    module.model_variables = model.network.variables
    return tf.lite.TFLiteConverter.from_concrete_functions([answer.get_concrete_function()], module)


def _samples(stored: np.ndarray, spec: data.InputSpec) -> Iterator[np.ndarray]:
    """Batches of one; image files are read."""
    for sample in stored:
        if spec.dtype == "string":
            sample = preprocessing.decode_image(tf.io.read_file(sample), spec).numpy()
        yield sample[None]


def _write_lines(path: Path, names) -> None:
    """A name per line; line breaks within names are escaped."""
    path.write_text("".join(f"{name!r}"[1:-1] + "\n" for name in names))
