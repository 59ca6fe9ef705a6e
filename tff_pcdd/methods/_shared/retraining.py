"""Training of a linear head on given features, at the server."""

from __future__ import annotations

from etils import epy

with epy.lazy_imports():
    import tensorflow as tf

_BATCH = 32


def with_ones(features: tf.Tensor) -> tf.Tensor:
    """Features [..., n, d] with a last column of ones, the inputs of the bias."""
    return tf.concat([features, tf.ones_like(features[..., :1])], axis=-1)


def train_head(
    head: tuple[tf.Tensor, tf.Tensor],
    features: tf.Tensor,
    labels: tf.Tensor,
    epochs: int,
    learning_rate: float,
    seed: tf.Tensor,
) -> tuple[tf.Tensor, tf.Tensor]:
    """Trains a linear head with cross-entropy by plain SGD on batches of 32.

    Args:
        head: initial kernel [d, C] and bias [C].
        features: float32 [n, d].
        labels: int32 [n].
        epochs: passes over the features, each in a random order.
        learning_rate: step size.
        seed: int32 [2], determines the orders.

    Returns:
        The new kernel and bias.
    """
    kernel, bias = head
    inputs = with_ones(features)
    size = tf.shape(inputs)[0]

    def train_epoch(epoch, matrix):
        fold = tf.random.experimental.stateless_fold_in(seed, epoch)
        order = tf.random.experimental.stateless_shuffle(tf.range(size), fold)
        x, y = tf.gather(inputs, order), tf.gather(labels, order)

        def step(start, matrix):
            batch = x[start : start + _BATCH]
            # Encoded here, because a table of all samples and classes may not fit into memory.
            targets = tf.one_hot(y[start : start + _BATCH], bias.shape[0])
            error = tf.nn.softmax(batch @ matrix) - targets
            gradient = tf.matmul(batch, error, transpose_a=True)
            count = tf.cast(tf.shape(batch)[0], tf.float32)
            return start + _BATCH, matrix - learning_rate / count * gradient

        _, matrix = tf.while_loop(lambda start, _: start < size, step, (tf.constant(0), matrix))
        return epoch + 1, matrix

    matrix = tf.concat([kernel, bias[None]], axis=0)
    _, matrix = tf.while_loop(
        lambda epoch, _: epoch < epochs,
        train_epoch,
        (tf.constant(0), matrix),
        parallel_iterations=1,  # otherwise, ten epochs are shuffled in advance
    )
    return matrix[:-1], matrix[-1]
