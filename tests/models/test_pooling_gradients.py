"""The gradient of max-pooling in compiled training, against a loop over all windows."""

import numpy as np
import pytest
import tensorflow as tf

from tff_pcdd import draws, models
from tff_pcdd.models import pooling_gradients
from tff_pcdd.runtime import _tf_private


def by_windows(x, upstream, size, stride):
    """The gradient for x, which goes to the first of the largest values of each window."""
    result = np.zeros_like(x)
    for b, i, j, c in np.ndindex(upstream.shape):
        window = x[b, i * stride : i * stride + size, j * stride : j * stride + size, c]
        row, column = np.unravel_index(np.argmax(window), window.shape)
        result[b, i * stride + row, j * stride + column, c] += upstream[b, i, j, c]
    return result


@pytest.mark.parametrize(
    ("shape", "size", "stride"),
    [((2, 8, 8, 3), 2, 2), ((2, 7, 9, 2), 3, 2), ((1, 5, 5, 1), 3, 1), ((1, 6, 7, 2), 2, 3)],
)
@pytest.mark.parametrize("jit_compile", [False, True])
def test_the_first_largest_value_of_a_window_gets_the_gradient(shape, size, stride, jit_compile):
    generator = np.random.default_rng(0)
    # Few different values, so that windows have several largest ones.
    x = generator.integers(0, 3, shape).astype(np.float32)

    @tf.function(jit_compile=jit_compile, autograph=False)
    def differentiate(x, upstream):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = pooling_gradients.max_pool(x, (size, size), (stride, stride))
        return y, tape.gradient(y, x, upstream)

    expected = tf.nn.max_pool2d(x, size, stride, "VALID").numpy()
    upstream = generator.normal(size=expected.shape).astype(np.float32)
    y, gradient = differentiate(tf.constant(x), tf.constant(upstream))
    np.testing.assert_array_equal(y, expected)
    expected = by_windows(x, upstream, size, stride)
    np.testing.assert_allclose(gradient, expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(("shape", "windows"), [((3, 8, 8, 6), 288), ((16, 28, 28, 6), 18816)])
def test_every_window_passes_its_gradient_on_behind_other_layers(shape, windows):
    """XLA computes the normalized images for the output, and once more for the gradient."""
    generator = np.random.default_rng(0)
    x, gamma, beta = (generator.normal(size=n).astype(np.float32) for n in (shape, 6, 6))

    @tf.function(jit_compile=True, autograph=False)
    def total_gradient(x):
        h, _, _ = tf.compat.v1.nn.fused_batch_norm(x, gamma, beta, is_training=True)
        with tf.GradientTape() as tape:
            tape.watch(h)
            total = tf.reduce_sum(pooling_gradients.max_pool(h, (2, 2), (2, 2)))
        return tf.reduce_sum(tape.gradient(total, h))

    # Each window passes a gradient of 1 on.
    assert total_gradient(tf.constant(x)) == windows


def test_networks_with_max_pooling_are_compiled_where_determinism_is_required():
    network = models.create("simple_cnn").build((32, 32, 3))
    x = tf.random.stateless_normal([2, 32, 32, 3], [1, 2])

    @tf.function(jit_compile=True, autograph=False)
    def gradients():
        with draws.compiled(), tf.GradientTape() as tape:
            loss = tf.reduce_sum(network(x) ** 2)
        return tape.gradient(loss, network.trainable_variables)

    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(network(x) ** 2)
    expected = tape.gradient(loss, network.trainable_variables)
    _tf_private.require_determinism(True)
    try:
        found = gradients()
    finally:
        _tf_private.require_determinism(False)
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-5 * np.max(np.abs(b)))
