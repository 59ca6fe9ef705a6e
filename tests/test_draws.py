"""Draws in functions that XLA compiles, against TensorFlow's own, uncompiled operations."""

import numpy as np
import pytest
import tensorflow as tf

from tff_pcdd import draws

# XLA itself uses another key for the second and third.
SEEDS = [(1, 2), (-5, 7), (5, -(2**31))]
AVAILABLE = tf.constant([0, 1, 1, 0, 3, 1.0])


def draw(seed):
    folded = draws.fold_in(draws.fold_in(seed, 7), -3)
    return (
        folded,
        draws.split(seed, 3),
        draws.uniform([9, 5], folded),
        draws.uniform([9], folded, maxval=9, dtype=tf.int32),
        draws.indices(AVAILABLE, 17, folded),
        draws.indices(tf.zeros(6), 17, folded),
        draws.uniform([9], folded, -0.3, 0.3),
    )


@tf.function(jit_compile=True)
def draw_compiled(seed):
    with draws.compiled():
        return draw(seed)


def test_fold_in_gives_different_seeds_for_different_numbers():
    seed = tf.constant([3, 4])
    derived = {tuple(draws.fold_in(seed, n).numpy()) for n in range(50)}
    assert len(derived) == 50
    np.testing.assert_array_equal(draws.fold_in(seed, 7), draws.fold_in(seed, 7))


@pytest.mark.parametrize("seed", SEEDS)
def test_draws_are_those_of_tensorflow_without_xla(seed):
    random, split = tf.random, tf.random.experimental.stateless_split
    fold_in = random.experimental.stateless_fold_in
    folded = fold_in(fold_in(seed, 7), -3)
    logits = tf.where(AVAILABLE > 0, 0.0, -1e32)
    *expected, scaled = (
        folded,
        tf.unstack(split(seed, 3)),
        random.stateless_uniform([9, 5], folded),
        random.stateless_uniform([9], folded, 0, 9, tf.int32),
        *(
            random.stateless_categorical(each[None], 17, folded, tf.int32)[0]
            for each in (logits, tf.zeros(6))
        ),
        random.stateless_uniform([9], folded, -0.3, 0.3),
    )
    for drawn in (draw(tf.constant(seed)), draw_compiled(tf.constant(seed))):
        *exact, rounded = drawn
        for a, b in zip(tf.nest.flatten(exact), tf.nest.flatten(expected), strict=True):
            assert a.dtype == b.dtype
            np.testing.assert_array_equal(a, b)
        np.testing.assert_allclose(rounded, scaled, atol=1e-7)
