"""The two losses that optimize FedLoGe's sparse frame (SSE-C).

Source: Xiao et al.: "FedLoGe: Joint Local and Generic Federated Learning under Long-tailed Data",
ICLR 2024, equation 4. After most of its entries are set to 0, a frame is no longer a simplex ETF.
Minimising equal_norm + maximal_angle over the other entries makes it almost a simplex ETF again.
"""

import tensorflow as tf

from tff_pcdd.losses._numerics import at_least_float32, l2_normalize, safe_norm

# Cosines are clipped to ± this value, because the derivative of arccos is infinite at ±1.
_COSINE_LIMIT = 0.99999


def equal_norm(psi, mask=None, norm: float = 0.1) -> tf.Tensor:
    """Squared errors of the lengths of the columns, summed over classes: Σ_c (‖ψ_c‖ - γ)².

    Args:
      psi: [feature_dim, num_classes], one column per class.
      mask: [feature_dim, num_classes], 1 (or true) for free entries; the others are treated as 0
        and have gradient 0. `None` means that all entries are free.
      norm: γ, the target length of the columns.

    Returns:
      Scalar, float32 (float64 for float64 psi).
    """
    psi = _masked(psi, mask)
    return tf.reduce_sum(tf.square(safe_norm(psi, axis=0) - norm))


def maximal_angle(psi, mask=None) -> tf.Tensor:
    """Negative mean over classes of the angle to the nearest other class, in radians.

    The loss is -(1/C) Σ_c arccos(max_{j≠c} cos(ψ_c, ψ_j)). If several classes are equally near, the
    first one receives the whole gradient; a pair whose cosine is above 0.99999 has gradient 0.

    Args:
      psi: [feature_dim, num_classes], one column per class, at least two.
      mask: [feature_dim, num_classes], 1 (or true) for free entries; the others are treated as 0
        and have gradient 0. `None` means that all entries are free.

    Returns:
      Scalar, float32 (float64 for float64 psi).
    """
    directions = tf.transpose(l2_normalize(_masked(psi, mask), axis=0))  # [classes, feature_dim]
    cosines = tf.matmul(directions, directions, transpose_b=True)
    itself = -2.0 * tf.ones_like(cosines[0])
    nearest = tf.argmax(tf.linalg.set_diag(cosines, itself), axis=1)
    # Selecting the pairs by index instead of with reduce_max does not split the gradient between
    # ties and avoids differentiating the matrix product.
    closest = tf.reduce_sum(directions * tf.gather(directions, nearest), axis=1)
    return -tf.reduce_mean(tf.acos(tf.clip_by_value(closest, -_COSINE_LIMIT, _COSINE_LIMIT)))


def dot_regression(features, labels, frame) -> tf.Tensor:
    """Dot regression of features to the column of their class, mean of (cos(h, w_y) - 1)²/2.

    A feature is only turned towards the column of its own class; other columns and all lengths do
    not matter. (FedLoGe's table 8 calls it DR loss. It is from Yang et al., Inducing Neural
    Collapse in Imbalanced Learning, NeurIPS 2022; here with features and columns of length 1.)

    Args:
      features: [batch, feature_dim], any float type.
      labels: [batch] class indices.
      frame: [feature_dim, num_classes], one fixed column per class.

    Returns:
      Scalar, float32 (float64 for float64 features).
    """
    features = l2_normalize(at_least_float32(features))
    columns = l2_normalize(tf.cast(frame, features.dtype), axis=0)
    cosines = tf.reduce_sum(features * tf.gather(tf.transpose(columns), labels), axis=1)
    return 0.5 * tf.reduce_mean(tf.square(cosines - 1))


def _masked(psi, mask) -> tf.Tensor:
    psi = at_least_float32(psi)
    return psi if mask is None else psi * tf.cast(mask, psi.dtype)
