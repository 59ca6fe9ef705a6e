"""What a client and the server compute, called without any federation."""

import math
from collections import OrderedDict

import numpy as np
import pytest
import tensorflow as tf

from tests import support
from tff_pcdd.federated import programs


@pytest.mark.parametrize("batch_size", [1, 2, 4, 7])
def test_steps_per_epoch(batch_size):
    """A last batch of one is left out unless it is the only one."""
    for size in range(20):
        expected = math.ceil(size / batch_size)
        if size % batch_size == 1 and size > batch_size:
            expected -= 1
        if batch_size == 1:
            expected = size
        actual = programs.steps_per_epoch(tf.constant(size), batch_size)
        assert int(actual) == expected, size
        assert actual.dtype == tf.int32


def test_ordered_sorts_all_the_way_down():
    value = {"b": 1, "a": {"d": (2, {"f": 3, "e": 4}), "c": []}}
    actual = programs.ordered(value)
    assert actual == OrderedDict(a=OrderedDict(c=[], d=[2, OrderedDict(e=4, f=3)]), b=1)
    assert list(actual) == ["a", "b"]
    assert list(actual["a"]["d"][1]) == ["e", "f"]


def test_counts_of_classes_and_right_answers():
    logits = tf.constant([[0.0, 2, 1], [3, 0, 0], [0, 0, 1], [0, 1, 0]])
    labels = tf.constant([1, 2, 2, 0])
    np.testing.assert_array_equal(programs.count_classes(labels, 3), [1, 1, 2])
    np.testing.assert_array_equal(programs.count_right(logits, labels), [0, 1, 1])
    empty = tf.zeros([0], tf.int32)
    np.testing.assert_array_equal(programs.count_classes(empty, 3), [0, 0, 0])
    np.testing.assert_array_equal(programs.count_right(tf.zeros([0, 3]), empty), [0, 0, 0])


@pytest.mark.parametrize("size", [0, 1, 511, 512, 513])
def test_reduce_batches_sees_every_sample_once(size):
    """In batches of 512, normalised as the input spec says."""
    x = np.random.default_rng(0).normal(size=(size, *support.IMAGE)).astype(np.float32)
    examples = OrderedDict(x=x, y=np.arange(size, dtype=np.int32))
    seen = []

    def function(total, x, y):
        seen.append(x.shape)
        return total[0] + tf.reduce_sum(x, axis=0), total[1] + tf.reduce_sum(y)

    initial = (tf.zeros(support.IMAGE), tf.constant(0))
    sums, labels = programs.reduce_batches(function, initial, examples, support.learning("fedavg"))
    np.testing.assert_allclose(sums, x.sum(axis=0), rtol=1e-4, atol=1e-4)
    assert int(labels) == size * (size - 1) // 2
    assert len(seen) == math.ceil(size / 512)


def test_fold_in_tells_numbers_apart():
    seed = tf.constant([3, 4])
    derived = {tuple(programs.fold_in(seed, n).numpy()) for n in range(50)}
    assert len(derived) == 50
    np.testing.assert_array_equal(programs.fold_in(seed, 7), programs.fold_in(seed, 7))


def test_weights_of_a_network_load_into_another():
    learning = support.learning("fedgela")
    weights = programs.initial_weights(learning)
    net = learning.network()
    programs.load(net, weights)
    support.assert_trees_equal(programs.weights_of(net), weights)
    support.assert_trees_equal(programs.initial_weights(support.learning("fedgela")), weights)
    other = programs.initial_weights(support.learning("fedgela", seed=1))
    assert np.any(other["trainable"][0] != weights["trainable"][0])
    assert np.any(other["fixed"][0] != weights["fixed"][0])
