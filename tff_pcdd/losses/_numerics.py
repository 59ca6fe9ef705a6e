"""Norms and casts whose gradients stay finite where the textbook formula divides by zero."""

import tensorflow as tf

# Squared length below which a vector has no usable direction (length 1e-12 in float32).
_TINY = 1e-24


def at_least_float32(values) -> tf.Tensor:
    """Converts to a tensor; integers and half precision become float32, float64 is kept.

    Args:
      values: array or tensor of any shape.

    Returns:
      Tensor of the same shape, float32 or float64.
    """
    values = tf.convert_to_tensor(values)
    return values if values.dtype in (tf.float32, tf.float64) else tf.cast(values, tf.float32)


def safe_norm(values: tf.Tensor, axis: int = -1, keepdims: bool = False) -> tf.Tensor:
    """Euclidean length with gradient 0, instead of NaN, at the zero vector.

    Args:
      values: float tensor of any shape.
      axis: the axis that holds a vector.
      keepdims: whether to keep `axis` with size 1.

    Returns:
      Tensor of the shape of `values` without `axis` (or with size 1 there).
    """
    squared = tf.reduce_sum(tf.square(values), axis=axis, keepdims=keepdims)
    positive = squared > _TINY
    # The inner `where` keeps sqrt away from 0, the outer one gives the value: with only one of
    # the two, the gradient would still contain 0 · ∞.
    root = tf.sqrt(tf.where(positive, squared, tf.ones_like(squared)))
    return tf.where(positive, root, tf.zeros_like(root))


def l2_normalize(values: tf.Tensor, axis: int = -1) -> tf.Tensor:
    """Scales vectors to length 1; the zero vector stays zero and passes no gradient.

    `tf.math.l2_normalize` multiplies the gradient at a zero vector by 1e6. After FedGELA's
    clipping by the global norm, one dead feature would then silence the rest of its batch.

    Args:
      values: float tensor of any shape.
      axis: the axis that holds a vector.

    Returns:
      Tensor of the same shape and type.
    """
    length = safe_norm(values, axis=axis, keepdims=True)
    alive = length > 0
    return tf.where(alive, values / tf.where(alive, length, tf.ones_like(length)), 0.0 * values)
