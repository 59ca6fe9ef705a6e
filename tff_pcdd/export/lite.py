"""Export of a trained model for TensorFlow Lite, to run personal models on the clients' devices.

The input is a single sample: `images` [1, height, width, channels] with pixels as stored in the
data set, or the `ids` [1, length] of a text's characters, since TensorFlow Lite's built-in ops
cannot look up characters. The outputs are those of `TrainedModel.answer`; labels.txt contains the
class names.

LSTMs are converted to TensorFlow Lite's fused LSTM, which keeps its state between calls: call
`reset_all_variables()` on the interpreter before every text.

The files are read by TensorFlow 2.21 and by LiteRT, the package ai-edge-litert.
"""

from __future__ import annotations

import contextlib
import dataclasses
import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import tensorflow as tf

from tff_pcdd import data, files
from tff_pcdd.data import transforms
from tff_pcdd.data.input_spec import VECTOR
from tff_pcdd.export import inputs
from tff_pcdd.export.trained import TrainedModel

FLOAT, INT8 = "model.tflite", "model_int8.tflite"


def write(model: TrainedModel, directory: Path, calibration: np.ndarray) -> list[str]:
    """Writes a float model, an int8 model, and the class names.

    Args:
        model: the model.
        directory: directory to which the files are written.
        calibration: stored training inputs [n, …], used to determine the ranges of the int8
            activations; if it is empty, no int8 model is written.

    Returns:
        The file names of the models.

    Raises:
        WriteError: a file cannot be written.
    """
    written = [FLOAT]
    _write(directory / FLOAT, _converter(model).convert())
    if len(calibration):
        written.append(INT8)
        _write(directory / INT8, _quantized(model, calibration))
    _write_lines(directory / "labels.txt", model.class_names)
    if model.input_spec.vocabulary:
        _write_lines(directory / "vocabulary.txt", model.input_spec.vocabulary)
    return written


def accuracy(path: Path, examples: data.Examples, spec: data.InputSpec) -> float:
    """Accuracy of a written model in percent; NaN if there are no examples."""
    with _without_advice():
        interpreter = tf.lite.Interpreter(str(path))
    interpreter.allocate_tensors()
    run, name = interpreter.get_signature_runner(), inputs.raw_spec(spec).name
    correct = 0
    for sample, label in zip(_samples(examples.x, spec), examples.y, strict=True):
        interpreter.reset_all_variables()
        correct += run(**{name: sample})["class_id"].item() == label
    return 100 * correct / len(examples) if len(examples) else float("nan")


@contextlib.contextmanager
def _without_advice() -> Iterator[None]:
    """Leaves out that later TensorFlows leave the interpreter to the package ai-edge-litert."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", r"(?s).*LiteRT", UserWarning)
        yield


def _converter(model: TrainedModel) -> tf.lite.TFLiteConverter:
    spec = model.input_spec
    raw = inputs.raw_spec(spec, batch=1)

    @tf.function(input_signature=[raw], autograph=model.network.autograph)
    def answer(x):
        return model.answer(_normalized(x, spec))

    module = tf.Module()
    module.model_variables = model.network.variables
    return tf.lite.TFLiteConverter.from_concrete_functions([answer.get_concrete_function()], module)


# More numbers than these are normalized together, as one operation for each would take too long.
_COLUMNS = 1024


def _normalized(x: tf.Tensor, spec: data.InputSpec) -> tf.Tensor:
    """As `transforms.normalize`, by operations that fail for an input of another shape.

    An interpreter gives an input the shape of whatever it is called with, and broadcasts. It joins
    and divides arrays only if their shapes agree.
    """
    if spec.kind != VECTOR or spec.shape[0] > _COLUMNS:
        joined = tf.concat([x, tf.zeros_like(x)], axis=0)[:-1]
        return transforms.normalize(joined, spec)
    one = dataclasses.replace(spec, shape=(1,), mean=None, std=None)
    columns = [transforms.normalize(column, one) for column in tf.unstack(x, axis=1)]
    if spec.mean is not None:
        columns = [column - mean for column, mean in zip(columns, spec.mean, strict=True)]
    if spec.std is not None:
        columns = [column / std for column, std in zip(columns, spec.std, strict=True)]
    return tf.stack(columns, axis=1)


# What the length of a feature vector is computed with. As an 8-bit integer, a short length becomes
# 0, by which TensorFlow Lite refuses to divide; TensorFlow 2.14 did not quantize divisions.
_FLOAT_OPS = ["SUM", "GREATER", "SELECT", "SELECT_V2", "SQRT", "DIV"]


# What normalizes the numbers of a vector, which in 8 bits would have the steps of the largest one.
_NORMALIZING = ["UNPACK", "ADD", "SUB", "MUL"]


def _quantized(model: TrainedModel, calibration: np.ndarray) -> bytes:
    """The int8 model, whose operations in `_FLOAT_OPS` compute with floating-point numbers."""
    converter = _converter(model)
    converter.optimizations = [tf.lite.Optimize.DEFAULT]
    converter.representative_dataset = lambda: (
        [sample] for sample in _samples(calibration, model.input_spec)
    )
    kept = [*_FLOAT_OPS, *(_NORMALIZING if model.input_spec.kind == VECTOR else ())]
    options = tf.lite.experimental.QuantizationDebugOptions(denylisted_ops=kept)
    with _without_advice():
        # Not only for debugging: the converter itself has no option to leave operations out.
        debugger = tf.lite.experimental.QuantizationDebugger(
            converter=converter,
            debug_dataset=converter.representative_dataset,
            debug_options=options,
        )
    return debugger.get_nondebug_quantized_model()


def _samples(stored: np.ndarray, spec: data.InputSpec) -> Iterator[np.ndarray]:
    """Yields batches of one sample; image files are read and decoded."""
    for sample in stored:
        if spec.dtype == "string":
            sample = transforms.decode_image(tf.io.read_file(sample), spec).numpy()
        yield sample[None]


def _write(path: Path, converted: bytes) -> None:
    files.write_atomically(path, lambda file: file.write(converted))


def _write_lines(path: Path, names: Iterable[str]) -> None:
    """Writes one name per line; line breaks within names are escaped."""
    files.write_text(path, "".join(f"{str(name)!r}"[1:-1] + "\n" for name in names))
