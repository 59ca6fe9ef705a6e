"""The sparse simplex ETF (SSE-C), FedLoGe's fixed classifier.

Source: Xiao et al.: "FedLoGe: Joint Local and Generic Federated Learning under Long-tailed Data",
ICLR 2024, section on the static sparse equiangular tight frame classifier, and table 9 for the
other starting points. Randomly chosen entries of a frame are set to 0; the other entries are then
optimized until all columns have length γ and the angles between them are as large as possible.
"""

import hashlib
import json
import logging
import os
import pathlib
import threading

import numpy as np
import tensorflow as tf

from tff_pcdd import files
from tff_pcdd.layers import frames
from tff_pcdd.layers.registration import register
from tff_pcdd.layers.simplex import FrameInitializer, check_etf_shape
from tff_pcdd.losses import equal_norm, maximal_angle

_logger = logging.getLogger(__name__)


SPARSE_ETF_INITS = frames.FRAME_INITS

# Part of a cache file's name; increase it when the same arguments lead to a different matrix.
_CACHE_VERSION = 2

_BETA1, _BETA2, _ADAM_EPSILON = 0.9, 0.999, 1e-8

_memory: dict[str, np.ndarray] = {}
_lock = threading.Lock()


def sparse_etf(
    feature_dim: int,
    num_classes: int,
    *,
    sparsity: float = 0.6,
    norm: float = 0.1,
    steps: int = 10000,
    learning_rate: float = 1e-4,
    seed: int,
    init: str = "etf",
    cache_dir: str | os.PathLike | None = None,
) -> np.ndarray:
    """Draws a sparse frame and optimizes it with Adam on `equal_norm` + `maximal_angle`.

    The free entries, those that are not 0 in the result, are chosen uniformly over the whole
    matrix, so their number differs between classes. They are the same for every `init`.

    The result is cached in memory and on disk, because the optimization takes seconds to minutes.
    Rounding can change which pair of classes is nearest in a step, so the same seed may lead to a
    different matrix on other hardware. Save the matrix in the checkpoint of a model trained with
    it.

    Args:
      feature_dim: width of the features, at least `num_classes`.
      num_classes: number of classes, at least 2.
      sparsity: share of the entries that are 0, in [0, 1).
      norm: γ, the length of the columns.
      steps: number of Adam steps.
      learning_rate: learning rate of Adam.
      seed: seed of `np.random.default_rng`, for the starting point and the zeros.
      init: distribution of the dense starting point: "etf", "xavier" (uniform ±√(6/(d+C))),
        "gaussian" (normal with variance γ²/d), "uniform" (on [0, γ·√(3/d))), "orthogonal"
        (orthonormal columns) or "kaiming" (normal with variance 2/d). "gaussian" and "uniform" are
        scaled to columns of length about γ: columns of the standard distributions have length √d,
        from which the default number of steps does not reach γ.
      cache_dir: folder of the disk cache, "" for none. `None` means the folder `tff_pcdd` in
        `$XDG_CACHE_HOME`, or in `~/.cache` if that is not set.

    Returns:
      Float32 array [feature_dim, num_classes], one column per class.

    Raises:
      ValueError: if no simplex ETF has this shape, an argument is out of range, `init` is unknown,
        or the zeros cover a whole column.
    """
    check_etf_shape(feature_dim, num_classes)
    if not 0 <= sparsity < 1:
        raise ValueError(f"sparsity must be at least 0 and below 1, got {sparsity}")
    frames.check_frame(norm, init)
    if not learning_rate > 0:
        raise ValueError(f"learning_rate must be positive, got {learning_rate}")
    if steps < 0:
        raise ValueError(f"steps must not be negative, got {steps}")

    key = _key(
        feature_dim=int(feature_dim),
        num_classes=int(num_classes),
        sparsity=float(sparsity),
        norm=float(norm),
        steps=int(steps),
        learning_rate=float(learning_rate),
        seed=int(seed),
        init=init,
    )
    path = _cache_path(cache_dir, feature_dim, num_classes, key)
    with _lock:  # so that concurrent calls for the same frame compute it only once
        if key in _memory:
            return _memory[key].copy()
        dense, mask = _start(feature_dim, num_classes, sparsity, norm, seed, init)
        psi = _read(path, mask)
        if psi is None:
            psi = optimize_sparse_etf(
                dense, mask, norm=norm, steps=steps, learning_rate=learning_rate
            )
            _warn_if_unfinished(psi, norm)
            # A free entry that underflowed to 0 would look like a masked one.
            psi = np.where(mask & (psi == 0), np.finfo(np.float32).tiny, psi)
            if path is not None:
                _write(path, psi)
        _memory[key] = psi
        return psi.copy()


def optimize_sparse_etf(
    initial, mask, *, norm: float = 0.1, steps: int = 10000, learning_rate: float = 1e-4
) -> np.ndarray:
    """Optimizes a sparse frame from a given starting point, as `sparse_etf` does.

    Adam has β = (0.9, 0.999) and ε = 1e-8. The gradients of masked entries are 0, so these entries
    stay exactly 0. All steps run in one `tf.while_loop` of a separate graph, so the function can be
    called at any time, even while another graph is being built.

    Args:
      initial: [feature_dim, num_classes], dense or masked; float32 or float64.
      mask: [feature_dim, num_classes], 1 (or true) for free entries.
      norm: γ, the length of the columns.
      steps: number of Adam steps.
      learning_rate: learning rate of Adam.

    Returns:
      Array [feature_dim, num_classes] of the type of `initial`.
    """
    initial = np.asarray(initial)
    mask = np.asarray(mask).astype(initial.dtype)

    @tf.function(autograph=False)
    def run(start):
        free = tf.constant(mask)

        def step(index, psi, mean, square):
            loss = equal_norm(psi, free, norm) + maximal_angle(psi, free)
            # A GradientTape would not work here: Keras stops all tapes while it creates the
            # weights of a layer, and an initializer may have called this function.
            gradient = tf.convert_to_tensor(tf.gradients(loss, psi)[0])
            mean += (1 - _BETA1) * (gradient - mean)
            square += (1 - _BETA2) * (tf.square(gradient) - square)
            time = tf.cast(index + 1, psi.dtype)
            # Adam's two bias corrections, as scalars rather than applied to the matrices.
            correction = tf.sqrt(1 - tf.pow(tf.cast(_BETA2, psi.dtype), time))
            rate = learning_rate / (1 - tf.pow(tf.cast(_BETA1, psi.dtype), time))
            psi -= rate * mean / (tf.sqrt(square) / correction + _ADAM_EPSILON)
            return index + 1, psi, mean, square

        zeros = tf.zeros_like(start)
        return tf.while_loop(
            lambda index, *_: index < steps,
            step,
            (tf.constant(0), start, zeros, zeros),
            parallel_iterations=1,
        )[1]

    graph = tf.Graph()
    with graph.as_default():
        result = run(tf.constant(initial * mask))
    with tf.compat.v1.Session(graph=graph) as session:
        return session.run(result)


def _start(feature_dim, num_classes, sparsity, norm, seed, init):
    """Dense float32 starting point and boolean mask, both [feature_dim, num_classes]."""
    rng, uniform, mask, empty = _draw(feature_dim, num_classes, sparsity, seed)
    if empty is not None:
        raise ValueError(
            f"sparsity={sparsity} with seed={seed} leaves no entry for class {empty} "
            f"(feature_dim={feature_dim}); use a lower sparsity or another seed"
        )
    return frames.draw(rng, uniform, norm, init).astype(np.float32), mask


def empty_class(feature_dim: int, num_classes: int, sparsity: float, seed: int) -> int | None:
    """The first class for which a sparse frame has no entry, so that `sparse_etf` refuses it.

    Returns:
      The class; `None` if every class has an entry.
    """
    return _draw(feature_dim, num_classes, sparsity, seed)[-1]


def _draw(feature_dim, num_classes, sparsity, seed):
    """Generator, uniform numbers and mask [feature_dim, num_classes], and the first empty class."""
    rng = np.random.default_rng(seed)
    uniform = rng.random((feature_dim, num_classes))
    free = np.ones(uniform.size, bool)
    free[rng.choice(free.size, int(sparsity * free.size), replace=False)] = False
    mask = free.reshape(uniform.shape)
    used = mask.any(axis=0)
    return rng, uniform, mask, None if used.all() else int(used.argmin())


def _warn_if_unfinished(psi: np.ndarray, norm: float) -> None:
    lengths = np.linalg.norm(psi, axis=0)
    worst = lengths[np.abs(lengths - norm).argmax()]
    if abs(worst - norm) > 0.1 * norm:
        _logger.warning(
            "sparse_etf: a column has length %.3g instead of norm=%g; use more steps or a larger "
            "learning_rate",
            worst,
            norm,
        )


def _key(**arguments) -> str:
    text = json.dumps({"version": _CACHE_VERSION, **arguments}, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _cache_path(cache_dir, feature_dim, num_classes, key) -> pathlib.Path | None:
    if cache_dir is None:
        root = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
        if root.startswith("~"):  # No home directory is known.
            return None
        cache_dir = pathlib.Path(root) / "tff_pcdd"
    elif not os.fspath(cache_dir):
        return None
    return pathlib.Path(cache_dir) / f"sparse_etf_{feature_dim}x{num_classes}_{key}.npy"


def _read(path: pathlib.Path | None, mask: np.ndarray) -> np.ndarray | None:
    """The cached frame; None if there is none or the file does not match the mask."""
    if path is None or not path.is_file():
        return None
    try:
        psi = np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError, MemoryError) as error:
        _logger.warning("ignoring the unreadable cache file %s: %s", path, error)
        return None
    if psi.dtype == np.float32 and np.array_equal(psi != 0, mask) and np.isfinite(psi).all():
        return psi
    _logger.warning("ignoring the cache file %s: its content does not match the arguments", path)
    return None


def _write(path: pathlib.Path, psi: np.ndarray) -> None:
    """Writes a frame to the disk cache."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        files.write_atomically(path, lambda file: np.save(file, psi))
    except OSError as error:
        # The cache is optional: the home directory may be read-only.
        _logger.warning("could not cache the sparse frame in %s: %s", path, error)


@register
class SparseETFInitializer(FrameInitializer):
    """Fills a weight [feature_dim, num_classes] with `sparse_etf`, whose arguments it takes."""

    frame = staticmethod(sparse_etf)

    def __init__(
        self,
        seed: int,
        sparsity: float = 0.6,
        norm: float = 0.1,
        steps: int = 10000,
        learning_rate: float = 1e-4,
        init: str = "etf",
    ):
        super().__init__(
            seed=seed,
            sparsity=sparsity,
            norm=norm,
            steps=steps,
            learning_rate=learning_rate,
            init=init,
        )
