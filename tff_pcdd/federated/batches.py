"""Batches and counts of examples {"x": [n, ...] as stored, "y": int32 [n]}."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from tff_pcdd.data import transforms
from tff_pcdd.federated.training_spec import TrainingSpec


def steps_per_epoch(num_samples: tf.Tensor, batch_size: int) -> tf.Tensor:
    """Optimizer steps of one pass over the samples.

    A last batch with a single sample is skipped unless it is the only one: batch normalization has
    no variance to normalize it by.
    """
    full, rest = num_samples // batch_size, num_samples % batch_size
    # tf.equal, because TFF traces in graphs where == between tensors compares Python objects.
    keep = tf.logical_or(rest > 1, tf.logical_and(tf.equal(rest, 1), tf.equal(full, 0)))
    return full + tf.cast(keep, num_samples.dtype)


def pad_to_bucket(values: tf.Tensor, batch_size: int) -> tf.Tensor:
    """Values [n, ...] with zeros behind them, up to a power of two of whole batches.

    Values that fill no batch stay as they are: a batch may be far larger.
    """
    size = tf.shape(values)[0]
    num_batches = -(-size // batch_size)
    powers = tf.constant([2**power for power in range(31)])
    bucket = powers[tf.reduce_sum(tf.cast(powers < num_batches, tf.int32))]
    rows = tf.where(size < batch_size, 0, bucket * batch_size - size)
    padding = tf.zeros(tf.concat([[rows], tf.shape(values)[1:]], 0), values.dtype)
    return tf.concat([values, padding], 0)


def eval_batches(x: np.ndarray, other: np.ndarray, spec: TrainingSpec) -> Iterator[tf.Tensor]:
    """Batches of inputs [n, ...] as stored, normalized but not augmented, outside of graphs.

    Without any, there is a batch of another input, of `other`: its result says what results are
    like, and convolutions refuse empty batches. The first n results are those of the inputs.
    """
    given, size = x if len(x) else other[:1], spec.eval_batch_size
    for start in range(0, len(given), size):
        yield transforms.normalize(tf.constant(given[start : start + size]), spec.input_spec)


def reduce_batches(
    function: Callable[[Any, tf.Tensor, tf.Tensor], Any],
    initial: Any,
    examples: Mapping[str, tf.Tensor],
    spec: TrainingSpec,
) -> Any:
    """Folds `function(total, x, y)` over batches of examples, normalized but not augmented.

    Args:
        function: returns the new total for a batch of inputs x and labels y.
        initial: the total before the first batch.
        examples: the examples as stored, which are taken in order.
        spec: gives the normalization and `eval_batch_size`.
    """
    num_samples = tf.size(examples["y"])
    size = spec.eval_batch_size

    def body(start, total):
        x = transforms.normalize(examples["x"][start : start + size], spec.input_spec)
        return start + size, function(total, x, examples["y"][start : start + size])

    _, total = tf.while_loop(lambda start, _: start < num_samples, body, (tf.constant(0), initial))
    return total


def map_batches(
    function: Callable[[tf.Tensor], tf.Tensor],
    examples: Mapping[str, tf.Tensor],
    spec: TrainingSpec,
    dtype: tf.DType,
    width: int,
) -> tf.Tensor:
    """Applies `function(x)` to batches of examples, normalized but not augmented.

    Returns:
        The results of all examples, `dtype` [n, width].
    """
    parts = tf.TensorArray(
        dtype, size=0, dynamic_size=True, infer_shape=False, element_shape=[None, width]
    )
    parts = reduce_batches(
        lambda parts, x, y: parts.write(parts.size(), function(x)), parts, examples, spec
    )
    return parts.concat()


def count_classes(labels: tf.Tensor, num_classes: int) -> tf.Tensor:
    """Number of labels [n] of each class, int32 [C]; negative ones, of no class, are left out."""
    return tf.math.unsorted_segment_sum(tf.ones_like(labels), labels, num_classes)


def classify(logits: tf.Tensor) -> tf.Tensor:
    """The class with the largest logit, int32 [n]; -1 for samples with logits like NaN.

    Args:
        logits: [n, C].
    """
    classes = tf.argmax(logits, axis=1, output_type=tf.int32)
    return tf.where(_finite_rows(logits), classes, -1)


def count_correct(predicted: tf.Tensor, labels: tf.Tensor, num_classes: int) -> tf.Tensor:
    """Correctly classified samples of each class, int32 [C].

    Args:
        predicted: int32 [n], as `classify` returns them.
        labels: int32 [n].
        num_classes: number of classes, C.
    """
    # tf.equal as above.
    correct = tf.cast(tf.equal(predicted, labels), tf.int32)
    return tf.math.unsorted_segment_sum(correct, labels, num_classes)


def count_nonfinite(predicted: tf.Tensor) -> tf.Tensor:
    """Samples of which a logit of any model is NaN or infinite, int32 scalar.

    Args:
        predicted: int32 [n, models], as `classify` returns them.
    """
    return tf.math.count_nonzero(tf.reduce_any(predicted < 0, axis=1), dtype=tf.int32)


def without_answers(logits: tf.Tensor, x: tf.Tensor, spec: TrainingSpec) -> tf.Tensor:
    """Logits [n, C] that are NaN for samples whose input has a value that is NaN or infinite.

    A network may hide such a value, for example because ReLU turns NaN into 0.
    """
    if not may_be_nonfinite(spec):
        return logits
    return tf.where(_finite_rows(x)[:, None], logits, tf.constant(float("nan")))


def may_be_nonfinite(spec: TrainingSpec) -> bool:
    """Whether stored inputs can be NaN or infinite."""
    return spec.input_spec.dtype == "float32"


def _finite_rows(values: tf.Tensor) -> tf.Tensor:
    """For each entry of the first axis, whether all its values are finite, bool [n]."""
    return tf.reduce_all(tf.math.is_finite(values), axis=range(1, len(values.shape)))
