"""Dense matrices with a column per class: where a sparse frame starts, and fixed classifiers.

Source: Xiao et al.: "FedLoGe: Joint Local and Generic Federated Learning under Long-tailed Data",
ICLR 2024, table 9, which compares such classifiers with the sparse frames optimized from them.
"""

import numpy as np

from tff_pcdd.layers.registration import register
from tff_pcdd.layers.simplex import FrameInitializer, check_etf_shape, etf_from_matrix

FRAME_INITS = ("etf", "xavier", "gaussian", "uniform", "orthogonal", "kaiming")


def draw(rng: np.random.Generator, uniform: np.ndarray, norm: float, init: str) -> np.ndarray:
    """Draws a dense matrix [feature_dim, num_classes].

    Args:
      rng: for the distributions that are not made from `uniform`.
      uniform: [feature_dim, num_classes], uniform on [0, 1).
      norm: γ, the length of the columns for "gaussian" and "uniform".
      init: "etf", "xavier" (uniform ±√(6/(d+C))), "gaussian" (normal with variance γ²/d), "uniform"
        (on [0, γ·√(3/d))), "orthogonal" (orthonormal columns) or "kaiming" (normal with variance
        2/d).
    """
    feature_dim, num_classes = shape = uniform.shape
    bound = np.sqrt(6.0 / (feature_dim + num_classes))
    return {
        "etf": lambda: etf_from_matrix(uniform),
        "xavier": lambda: bound * (2.0 * uniform - 1.0),
        "gaussian": lambda: rng.normal(scale=norm * feature_dim**-0.5, size=shape),
        "uniform": lambda: norm * np.sqrt(3.0 / feature_dim) * uniform,
        "orthogonal": lambda: np.linalg.qr(rng.normal(size=shape))[0],
        "kaiming": lambda: rng.normal(scale=np.sqrt(2.0 / feature_dim), size=shape),
    }[init]()


def dense_frame(
    feature_dim: int, num_classes: int, *, norm: float = 0.1, seed: int, init: str = "etf"
) -> np.ndarray:
    """Draws a dense frame, which is not optimized; its columns are scaled to the same length.

    Args:
      feature_dim: width of the features, at least `num_classes`.
      num_classes: number of classes, at least 2.
      norm: γ, the length of the columns.
      seed: seed of `np.random.default_rng`.
      init: distribution of the matrix, see `draw`.

    Returns:
      Float32 array [feature_dim, num_classes], one column per class.

    Raises:
      ValueError: if no simplex ETF has this shape, norm is not positive, or `init` is unknown.
    """
    check_etf_shape(feature_dim, num_classes)
    check_frame(norm, init)
    rng = np.random.default_rng(seed)
    matrix = draw(rng, rng.random((feature_dim, num_classes)), norm, init)
    return (norm * matrix / np.linalg.norm(matrix, axis=0)).astype(np.float32)


def check_frame(norm: float, init: str) -> None:
    """Checks what dense and sparse frames have in common.

    Raises:
      ValueError: if norm is not positive or `init` is unknown.
    """
    if not norm > 0:
        raise ValueError(f"norm must be positive, got {norm}")
    if init not in FRAME_INITS:
        raise ValueError(f"init must be one of {', '.join(FRAME_INITS)}, got {init!r}")


@register
class DenseFrameInitializer(FrameInitializer):
    """Fills a weight [feature_dim, num_classes] with `dense_frame`, whose arguments it takes."""

    frame = staticmethod(dense_frame)

    def __init__(self, seed: int, norm: float = 0.1, init: str = "etf"):
        super().__init__(seed=seed, norm=norm, init=init)
