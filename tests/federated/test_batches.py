"""Batches, seeds and counts, called without any federation."""

import math
from collections import OrderedDict

import numpy as np
import pytest
import tensorflow as tf

from tests import support
from tff_pcdd.federated import batches


@pytest.mark.parametrize("batch_size", [1, 2, 4, 7])
def test_steps_per_epoch(batch_size):
    """A last batch with a single sample is skipped unless it is the only one."""
    for size in range(20):
        expected = math.ceil(size / batch_size)
        if size % batch_size == 1 and size > batch_size:
            expected -= 1
        if batch_size == 1:
            expected = size
        actual = batches.steps_per_epoch(tf.constant(size), batch_size)
        assert int(actual) == expected, size
        assert actual.dtype == tf.int32


def test_steps_in_the_graphs_of_tff():
    """There, == between tensors compares Python objects."""
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        sizes = tf.compat.v1.placeholder(tf.int32, [])
        steps = tf.function(batches.steps_per_epoch, autograph=False)(sizes, 4)
        found = [session.run(steps, {sizes: size}) for size in range(7)]
    assert found == [0, 1, 1, 1, 1, 1, 2]


def test_counts_of_classes_and_correct_answers():
    logits = tf.constant([[0.0, 2, 1], [3, 0, 0], [0, 0, 1], [0, 1, 0]])
    labels = tf.constant([1, 2, 2, 0])
    np.testing.assert_array_equal(batches.count_classes(labels, 3), [1, 1, 2])
    predicted = batches.classify(logits)
    np.testing.assert_array_equal(predicted, [1, 0, 2, 1])
    np.testing.assert_array_equal(batches.count_correct(predicted, labels, 3), [0, 1, 1])
    empty = tf.zeros([0], tf.int32)
    np.testing.assert_array_equal(batches.count_classes(empty, 3), [0, 0, 0])
    np.testing.assert_array_equal(batches.classify(tf.zeros([0, 3])), [])
    np.testing.assert_array_equal(batches.count_correct(empty, empty, 3), [0, 0, 0])


def test_answers_that_are_not_finite_are_no_class():
    """A sample counts once, however many models do not answer it."""
    logits = tf.constant([[0.0, 2], [math.nan, 1], [1, math.inf], [-math.inf, 0], [1, 0]])
    predicted = batches.classify(logits)
    np.testing.assert_array_equal(predicted, [1, -1, -1, -1, 0])
    other = tf.constant([-1, -1, 0, 0, 0])
    assert int(batches.count_nonfinite(tf.stack([predicted, other], axis=1))) == 4


@pytest.mark.parametrize("size", [0, 1, 511, 512, 513])
def test_reduce_batches_sees_every_sample_once(size):
    """In batches of 512, normalized as the input spec says."""
    x = np.random.default_rng(0).normal(size=(size, *support.IMAGE)).astype(np.float32)
    examples = OrderedDict(x=x, y=np.arange(size, dtype=np.int32))
    seen = []

    def function(total, x, y):
        seen.append(x.shape)
        return total[0] + tf.reduce_sum(x, axis=0), total[1] + tf.reduce_sum(y)

    initial = (tf.zeros(support.IMAGE), tf.constant(0))
    sums, labels = batches.reduce_batches(
        function, initial, examples, support.training_spec("fedavg")
    )
    np.testing.assert_allclose(sums, x.sum(axis=0), rtol=1e-4, atol=1e-4)
    assert int(labels) == size * (size - 1) // 2
    assert len(seen) == math.ceil(size / 512)


@pytest.mark.parametrize("size", [0, 1, 511, 512, 513])
def test_map_batches_joins_the_results_in_order(size):
    x = np.random.default_rng(0).normal(size=(size, *support.IMAGE)).astype(np.float32)
    examples = OrderedDict(x=x, y=np.zeros(size, np.int32))

    def function(x):
        flat = tf.reshape(x, [tf.shape(x)[0], -1])
        return tf.stack([tf.reduce_max(flat, axis=1), tf.reduce_min(flat, axis=1)], axis=1)

    spec = support.training_spec("fedavg")
    found = tf.function(lambda e: batches.map_batches(function, e, spec, tf.float32, 2))(examples)
    flat = x.reshape(size, math.prod(support.IMAGE))
    wanted = [[row.max(), row.min()] for row in flat]
    np.testing.assert_array_equal(found, np.reshape(wanted, (size, 2)))
