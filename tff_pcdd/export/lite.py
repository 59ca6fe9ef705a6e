"""Export of a trained model for TensorFlow Lite, to run personal models on the clients' devices.

The input is a single sample: `images` [1, height, width, channels] with pixels as stored in the
data set; the `features` [1, columns] of a row of a table; or the `ids` [1, length] of a text's
characters. TensorFlow Lite's built-in ops cannot look up texts, so the code in columns.json stands
for a category that is a text. The outputs are those of `TrainedModel.answer`; labels.txt contains
the class names. For features that other formats refuse, such as NaN, probabilities are NaN, and
classes -1.

LSTMs are converted to TensorFlow Lite's fused LSTM, which keeps its state between calls: call
`reset_all_variables()` on the interpreter before every text.

The files are read by TensorFlow 2.21 and by LiteRT, the package ai-edge-litert.
"""

from __future__ import annotations

import contextlib
import dataclasses
import warnings
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
import tensorflow as tf

from tff_pcdd import data, files
from tff_pcdd.data import encoding, transforms
from tff_pcdd.data.input_spec import VECTOR
from tff_pcdd.export import inputs
from tff_pcdd.export.trained import TrainedModel
from tff_pcdd.text import one_line

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
    x = inputs.raw_examples(examples.x, spec)
    for sample, label in zip(_samples(x, spec), examples.y, strict=True):
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
        features = _normalized(x, spec)
        answers = model.answer(features)
        return _refused(answers, x, features, spec) if spec.kind == VECTOR else answers

    module = tf.Module()
    module.model_variables = model.network.variables
    return tf.lite.TFLiteConverter.from_concrete_functions([answer.get_concrete_function()], module)


def _refused(
    answers: dict[str, tf.Tensor], x: tf.Tensor, features: tf.Tensor, spec: data.InputSpec
) -> dict[str, tf.Tensor]:
    """Answers, with NaN and -1 for inputs that other formats refuse; no operation can refuse them.

    Args:
        answers: by the network.
        x: the inputs, [batch, numbers].
        features: the normalized inputs, NaN where a category is unknown.
        spec: the input spec.
    """
    # In both, because int8 models may round features, which leaves no NaN.
    is_usable = tf.abs(x) <= tf.float32.max
    if not encoding.is_plain(spec.columns):
        may_be_missing = [[column.fill is not None for column in spec.columns or ()]]
        is_usable |= tf.not_equal(x, x) & tf.constant(may_be_missing)
    is_usable = tf.reduce_all(is_usable, axis=1)
    is_usable &= tf.reduce_all(tf.abs(features) <= tf.float32.max, axis=1)
    return {
        name: tf.where(is_usable, value, -1)
        if value.dtype.is_integer
        else tf.where(is_usable[:, None], value, np.nan)
        for name, value in answers.items()
    }


# More numbers than these are normalized together, as one operation for each would take too long.
_COLUMNS = 1024


def _normalized(x: tf.Tensor, spec: data.InputSpec) -> tf.Tensor:
    """As `transforms.normalize`, by operations that fail for an input of another shape.

    An interpreter gives an input the shape of whatever it is called with, and broadcasts. It joins
    and divides arrays only if their shapes agree.
    """
    if not encoding.is_plain(spec.columns):
        return _from_columns(tf.unstack(x, axis=1), spec)
    if spec.kind != VECTOR or spec.shape[0] > _COLUMNS:
        joined = tf.concat([x, tf.zeros_like(x)], axis=0)[:-1]
        return transforms.normalize(joined, spec)
    one = dataclasses.replace(spec, shape=(1,), mean=None, std=None, columns=None)
    columns = [transforms.normalize(column, one) for column in tf.unstack(x, axis=1)]
    if spec.mean is not None:
        columns = [column - mean for column, mean in zip(columns, spec.mean, strict=True)]
    if spec.std is not None:
        columns = [column / std for column, std in zip(columns, spec.std, strict=True)]
    return tf.stack(columns, axis=1)


def _from_columns(columns: Sequence[tf.Tensor], spec: data.InputSpec) -> tf.Tensor:
    """As `inputs.from_columns`, each column by itself, so that int8 models keep their scales."""
    blocks, start = [], 0
    for values, column in zip(columns, spec.columns or (), strict=True):
        for block in inputs.encoded(values, column):
            part = slice(start, start := start + block.shape[1])
            own = dataclasses.replace(
                spec,
                shape=block.shape[1:],
                columns=None,
                mean=spec.mean and spec.mean[part],
                std=spec.std and spec.std[part],
            )
            blocks.append(transforms.normalize(block, own))
    return tf.concat(blocks, axis=1)


# What the length of a feature vector is computed with. As an 8-bit integer, a short length becomes
# 0, by which TensorFlow Lite refuses to divide; TensorFlow 2.14 did not quantize divisions.
_FLOAT_OPS = ["SUM", "GREATER", "SELECT", "SELECT_V2", "SQRT", "DIV"]


# What normalizes the numbers of a vector, which in 8 bits would have the steps of the largest one.
_NORMALIZING = ["UNPACK", "ADD", "SUB", "MUL", "ABS", "LESS_EQUAL"]

# What replaces missing numbers and encodes categories.
_ENCODING = ["RESHAPE", "STRIDED_SLICE", "CONCATENATION", "EQUAL", "NOT_EQUAL", "CAST"]
_ENCODING += ["REDUCE_ANY", "LOGICAL_OR"]


def _quantized(model: TrainedModel, calibration: np.ndarray) -> bytes:
    """The int8 model, whose operations in `_FLOAT_OPS` compute with floating-point numbers."""
    raw = inputs.raw_examples(calibration, model.input_spec)
    converter = _converter(model)
    converter.optimizations = [tf.lite.Optimize.DEFAULT]
    converter.representative_dataset = lambda: (
        [sample] for sample in _samples(raw, model.input_spec)
    )
    kept = [*_FLOAT_OPS, *(_NORMALIZING if model.input_spec.kind == VECTOR else ())]
    if not encoding.is_plain(model.input_spec.columns):
        kept += _ENCODING
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
    files.write_text(path, "".join(f"{one_line(str(name))}\n" for name in names))
