"""Batches, seeds and counts of examples {"x": [n, ...] as stored, "y": int32 [n]}."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf

from tff_pcdd.data import transforms
from tff_pcdd.federated.training_spec import TrainingSpec


def steps_per_epoch(num_samples: tf.Tensor, batch_size: int) -> tf.Tensor:
    """Optimizer steps of one pass over the samples.

    A last batch with a single sample is skipped unless it is the only one: batch normalization has
    no variance to normalize it by.
    """
    full, rest = num_samples // batch_size, num_samples % batch_size
    keep = tf.logical_or(rest > 1, tf.logical_and(rest == 1, full == 0))
    return full + tf.cast(keep, num_samples.dtype)


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


def fold_in(seed: tf.Tensor, number: int | tf.Tensor) -> tf.Tensor:
    """Derives a seed, int32 [2], from a seed and a number."""
    return tf.random.experimental.stateless_fold_in(seed, number)


def count_classes(labels: tf.Tensor, num_classes: int) -> tf.Tensor:
    """Number of labels [n] of each class, int32 [C]."""
    return tf.math.unsorted_segment_sum(tf.ones_like(labels), labels, num_classes)


def count_correct(logits: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
    """Correctly classified samples of each class, int32 [C]; never those with logits like NaN.

    Args:
        logits: [n, C].
        labels: int32 [n].
    """
    # tf.equal, because TFF traces in graphs where == between tensors compares Python objects.
    correct = tf.equal(tf.argmax(logits, axis=1, output_type=tf.int32), labels)
    correct = tf.logical_and(correct, _finite_rows(logits))
    return tf.math.unsorted_segment_sum(tf.cast(correct, tf.int32), labels, logits.shape[1])


def count_nonfinite(logits: tf.Tensor) -> tf.Tensor:
    """Samples of which a logit is NaN or infinite, int32 scalar; `logits` is [n, C]."""
    return tf.math.count_nonzero(tf.logical_not(_finite_rows(logits)), dtype=tf.int32)


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
