"""Norms and casts whose gradients are finite where the textbook formula divides by zero."""

from collections.abc import Sequence

import tensorflow as tf

# Squared length below which a vector has no usable direction (length 1e-12 in float32).
_TINY = 1e-24


def at_least_float32(values) -> tf.Tensor:
    """Converts to a tensor of type float32, or float64 if that is the input's type.

    Args:
      values: array or tensor of any shape.

    Returns:
      Tensor of the same shape, float32 or float64.
    """
    values = tf.convert_to_tensor(values)
    return values if values.dtype in (tf.float32, tf.float64) else tf.cast(values, tf.float32)


def safe_norm(
    values: tf.Tensor, axis: int | Sequence[int] = -1, keepdims: bool = False
) -> tf.Tensor:
    """Euclidean length, whose gradient at the zero vector is 0 instead of NaN."""
    squared = tf.reduce_sum(tf.square(values), axis=axis, keepdims=keepdims)
    positive = squared > _TINY
    # The outer `where` selects the result. The inner one avoids sqrt(0), whose infinite gradient
    # would be multiplied by 0, which gives NaN.
    root = tf.sqrt(tf.where(positive, squared, tf.ones_like(squared)))
    return tf.where(positive, root, tf.zeros_like(root))


def l2_normalize(values: tf.Tensor, axis: int | Sequence[int] = -1) -> tf.Tensor:
    """Scales vectors to length 1; a zero vector stays zero and has gradient 0.

    `tf.math.l2_normalize` multiplies the gradient at a zero vector by 1e6. Since FedGELA clips
    gradients by their global norm, one such vector would suppress the rest of the batch.
    """
    length = safe_norm(values, axis=axis, keepdims=True)
    alive = length > 0
    return tf.where(alive, values / tf.where(alive, length, tf.ones_like(length)), 0.0 * values)
