"""Convex combinations that minimize a quadratic form: FedPAC's combinations of heads."""

from __future__ import annotations

from etils import epy

with epy.lazy_imports():
    import tensorflow as tf

# Smaller weights of heads are set to 0, as in the authors' code.
_LEAST_WEIGHT = 1e-3

# Added to the diagonal of a matrix with trace 1, so that every linear system has a solution.
_RIDGE = 1e-9
_TOLERANCE = 1e-7


def head_weights(
    own: tuple[tf.Tensor, tf.Tensor], others: tuple[tf.Tensor, tf.Tensor], present: tf.Tensor
) -> tf.Tensor:
    """α of a client's own head and of those of others, by FedPAC's quadratic program.

    With h and V as in the module `fedpac`, it minimizes Σ_j α_j² V_j + Σ_c ‖h_{i,c} - Σ_j α_j
    h_{j,c}‖² over α ≥ 0 with Σ_j α_j = 1.

    Args:
        own: h [C, d] and V, a scalar, of the client.
        others: h [n, C, d] and V [n] of the others.
        present: bool [n], those whose heads can be used.

    Returns:
        α, float32 [1 + n], the client's own first.
    """
    (statistics, variance), (all_statistics, variances) = own, others
    rows = present.shape[0]
    differences = tf.reshape(statistics - all_statistics, [rows, -1])
    differences = tf.pad(differences, [[1, 0], [0, 0]])
    variances = tf.concat([[variance], variances], axis=0)
    matrix = tf.matmul(differences, differences, transpose_b=True) + tf.linalg.diag(variances)
    allowed = tf.concat([[True], present], axis=0)
    weights = tf.cast(best_combination(matrix, allowed), tf.float32)
    weights = tf.where(weights > _LEAST_WEIGHT, weights, 0.0)
    return weights / tf.reduce_sum(weights)


def best_combination(matrix: tf.Tensor, allowed: tf.Tensor) -> tf.Tensor:
    """Weights α ≥ 0 with sum 1 that minimize αᵀ·P·α, exactly up to rounding.

    α is x / Σx for the x ≥ 0 that minimizes xᵀ·P·x / 2 - Σx. It is found by the active-set method
    of Lawson and Hanson ("Solving Least Squares Problems", 1974, chapter 23), in double precision.

    Args:
        matrix: P, float [n, n], symmetric and positive semidefinite.
        allowed: bool [n]; the weights of the entries that are not allowed are 0. The first entry
            has to be allowed.

    Returns:
        α, float64 [n].
    """
    size = matrix.shape[0]
    matrix = tf.cast(matrix, tf.float64)
    chosen = tf.cast(allowed, tf.float64)
    matrix *= chosen[:, None] * chosen
    identity = tf.eye(size, dtype=tf.float64)
    matrix = tf.math.divide_no_nan(matrix, tf.linalg.trace(matrix)) + _RIDGE * identity

    def step(count, x, passive, done):
        """Moves towards the minimum over the passive entries, until one of them becomes 0."""
        mask = tf.cast(passive, tf.float64)
        system = mask[:, None] * mask * matrix + (1 - mask) * identity
        z = tf.linalg.solve(system, mask[:, None])[:, 0]
        blocked = tf.logical_and(passive, z <= 0)
        shares = tf.where(blocked, tf.math.divide_no_nan(x, x - z), tf.ones_like(x))
        first = tf.equal(tf.range(size), tf.argmin(shares, output_type=tf.int32))
        stopped = tf.reduce_any(blocked)
        x = tf.where(stopped, x + tf.reduce_min(shares) * (z - x), z)
        x = tf.where(tf.logical_and(stopped, first), tf.zeros_like(x), x)
        # Otherwise the entry along which the form decreases fastest becomes passive.
        slopes = 1 - tf.linalg.matvec(matrix, x)
        candidates = tf.logical_and(allowed, tf.logical_not(passive))
        slopes = tf.where(candidates, slopes, tf.zeros_like(slopes))
        best = tf.equal(tf.range(size), tf.argmax(slopes, output_type=tf.int32))
        done = tf.logical_and(tf.logical_not(stopped), tf.reduce_max(slopes) <= _TOLERANCE)
        passive = tf.where(
            stopped,
            tf.logical_and(passive, tf.logical_not(first)),
            tf.logical_or(passive, tf.logical_and(best, slopes > _TOLERANCE)),
        )
        return count + 1, x, passive, done

    first = tf.equal(tf.range(size), 0)
    # Many operations on a few numbers, for which GPUs take longer than processors.
    with tf.device("/device:CPU:0"):
        _, x, *_ = tf.while_loop(
            lambda count, x, passive, done: tf.logical_and(count < 10 * size, tf.logical_not(done)),
            step,
            (tf.constant(0), tf.zeros([size], tf.float64), first, tf.constant(False)),
        )
    return x / tf.reduce_sum(x)
