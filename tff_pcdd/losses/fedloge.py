"""The two losses that shape FedLoGe's sparse frame (SSE-C).

Source: Xiao et al.: "FedLoGe: Joint Local and Generic Federated Learning
under Long-tailed Data", ICLR 2024, equation 4. A frame in which most entries are zero is no
simplex ETF any more; minimising equal_norm + maximal_angle over its other entries makes it nearly
one again.
"""

import tensorflow as tf

from tff_pcdd.losses._numerics import at_least_float32, l2_normalize, safe_norm

# Cosines are held within ±this before arccos, whose slope is infinite at ±1.
_COSINE_LIMIT = 0.99999


def equal_norm(psi, mask=None, norm: float = 0.1) -> tf.Tensor:
    """Sum over classes of the squared error of a column's length: Σ_c (‖ψ_c‖ - γ)².

    Args:
      psi: [feature_dim, num_classes], one column per class.
      mask: [feature_dim, num_classes], 1 (or true) for free entries; the others count as 0 and get
        no gradient. `None` frees all.
      norm: γ, the length wanted.

    Returns:
      Scalar, float32 (float64 for float64 psi).
    """
    psi = _masked(psi, mask)
    return tf.reduce_sum(tf.square(safe_norm(psi, axis=0) - norm))


def maximal_angle(psi, mask=None) -> tf.Tensor:
    """Minus the mean over classes of the angle to the nearest other class, in radians.

    -(1/C) Σ_c arccos(max_{j≠c} cos(ψ_c, ψ_j)). Among equally near classes the first one gets the
    whole gradient; where two columns point the same way (cosine above 0.99999) there is none.

    Args:
      psi: [feature_dim, num_classes], one column per class, at least two.
      mask: [feature_dim, num_classes], 1 (or true) for free entries; the others count as 0 and get
        no gradient. `None` frees all.

    Returns:
      Scalar, float32 (float64 for float64 psi).
    """
    directions = tf.transpose(l2_normalize(_masked(psi, mask), axis=0))  # [classes, feature_dim]
    cosines = tf.matmul(directions, directions, transpose_b=True)
    itself = -2.0 * tf.ones_like(cosines[0])
    nearest = tf.argmax(tf.linalg.set_diag(cosines, itself), axis=1)
    # Only the chosen pairs take part in the gradient. Taking them by index rather than with
    # reduce_max keeps ties from being split, and saves the gradient of the matrix product.
    closest = tf.reduce_sum(directions * tf.gather(directions, nearest), axis=1)
    return -tf.reduce_mean(tf.acos(tf.clip_by_value(closest, -_COSINE_LIMIT, _COSINE_LIMIT)))


def _masked(psi, mask) -> tf.Tensor:
    psi = at_least_float32(psi)
    return psi if mask is None else psi * tf.cast(mask, psi.dtype)
