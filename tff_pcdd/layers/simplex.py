"""The simplex equiangular tight frame (ETF): C unit vectors at equal, maximal angles.

Source: Papyan, Han, Donoho: "Prevalence of neural collapse during the terminal phase of deep
learning training", PNAS 2020. FedGELA (NeurIPS 2023) uses it as a fixed classifier.
"""

from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
import tensorflow as tf

from tff_pcdd.layers.registration import register


def check_etf_shape(feature_dim: int, num_classes: int) -> None:
    """Checks that a simplex ETF of this shape exists.

    Raises:
      ValueError: if there are fewer than two classes, or fewer features than classes.
    """
    if num_classes < 2:
        raise ValueError(f"a simplex ETF needs num_classes >= 2, got {num_classes}")
    if feature_dim < num_classes:
        raise ValueError(
            "a simplex ETF needs feature_dim >= num_classes, "
            f"got feature_dim={feature_dim} and num_classes={num_classes}"
        )


def etf_from_matrix(matrix) -> np.ndarray:
    """Turns a matrix of full column rank into a simplex ETF.

    M = sqrt(C/(C-1)) · U · (I - 11ᵀ/C), where U is the orthonormal factor of the reduced QR
    decomposition. The columns of M have length 1, and the cosine of every pair is -1/(C-1).

    Args:
      matrix: [feature_dim, num_classes].

    Returns:
      Float64 array [feature_dim, num_classes].

    Raises:
      ValueError: if there are fewer than two classes, or fewer features than classes.
    """
    matrix = np.asarray(matrix, np.float64)
    feature_dim, num_classes = matrix.shape
    check_etf_shape(feature_dim, num_classes)
    orthonormal, _ = np.linalg.qr(matrix)
    centring = np.eye(num_classes) - 1.0 / num_classes
    return np.sqrt(num_classes / (num_classes - 1)) * orthonormal @ centring


def simplex_etf(feature_dim: int, num_classes: int, seed: int) -> np.ndarray:
    """Draws a simplex ETF: `etf_from_matrix` of a matrix with entries uniform on [0, 1).

    Args:
      feature_dim: width of the features, at least `num_classes`.
      num_classes: number of classes, at least 2.
      seed: seed of `np.random.default_rng`.

    Returns:
      Float32 array [feature_dim, num_classes], one unit column per class.

    Raises:
      ValueError: if there are fewer than two classes, or fewer features than classes.
    """
    check_etf_shape(feature_dim, num_classes)
    uniform = np.random.default_rng(seed).random((feature_dim, num_classes))
    return etf_from_matrix(uniform).astype(np.float32)


class FrameInitializer(tf.keras.initializers.Initializer):
    """Fills a weight [feature_dim, num_classes] with what `frame` draws, given the arguments."""

    frame: ClassVar[Callable[..., np.ndarray]]

    def __init__(self, **arguments: Any):
        self._arguments = arguments

    def __call__(self, shape, dtype=None, **kwargs):
        """Draws the frame; `shape` is (feature_dim, num_classes)."""
        frame = self.frame(*tf.TensorShape(shape).as_list(), **self._arguments)
        return tf.cast(tf.constant(frame), dtype or tf.float32)

    def get_config(self):
        return dict(self._arguments)


@register
class SimplexETFInitializer(FrameInitializer):
    """Fills a weight [feature_dim, num_classes] with `simplex_etf`, whose arguments it takes."""

    frame = staticmethod(simplex_etf)

    def __init__(self, seed: int):
        super().__init__(seed=seed)
