"""Dropout as a function of the seed, alone and in the federated computations."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from tests import support
from tff_pcdd import layers
from tff_pcdd.federated import build_process

X = np.ones((50, 40), np.float32)


def drop(layer, seed, x=X):
    with layers.dropout_seed(tf.constant(seed, tf.int32)):
        return layer(x, training=True).numpy()


def test_a_share_is_dropped_and_the_rest_is_scaled():
    layer = layers.StatelessDropout(0.3)
    y = drop(layer, [1, 2])
    assert set(np.unique(y)) == {np.float32(0), np.float32(1) / np.float32(0.7)}
    assert np.mean(y == 0) == pytest.approx(0.3, abs=0.04)
    np.testing.assert_array_equal(layer(X), X)
    np.testing.assert_array_equal(layer(X, training=False), X)
    np.testing.assert_array_equal(drop(layers.StatelessDropout(0.0), [1, 2]), X)


def test_draws_are_a_function_of_the_seed():
    layer = layers.StatelessDropout(0.5)
    tf.random.set_seed(1)
    first = drop(layer, [1, 2])
    tf.random.set_seed(2)
    np.testing.assert_array_equal(drop(layer, [1, 2]), first)
    np.testing.assert_array_equal(drop(layers.StatelessDropout(0.5), [1, 2]), first)
    assert np.any(drop(layer, [1, 3]) != first)

    run = tf.function(lambda seed: drop_in_graph(layer, seed))
    for seed in ([1, 2], [3, 4]):
        np.testing.assert_array_equal(run(tf.constant(seed)), drop(layer, seed))


def drop_in_graph(layer, seed):
    with layers.dropout_seed(seed):
        return layer(X, training=True)


def test_every_call_draws_for_itself():
    """Two layers in one forward pass, or two passes through one."""
    layer, other = layers.StatelessDropout(0.5), layers.StatelessDropout(0.5)
    with layers.dropout_seed(tf.constant([1, 2])):
        draws = [call(X, training=True).numpy() for call in (layer, other, layer)]
    assert np.any(draws[0] != draws[1]) and np.any(draws[0] != draws[2])


def test_whole_samples_may_be_dropped():
    y = drop(layers.StatelessDropout(0.4, (None, 1)), [1, 2])
    assert set(np.unique(y.mean(axis=1)).round(4)) == {np.float32(0), np.float32(1.6667)}


def test_training_without_a_seed_is_an_error():
    layer = layers.StatelessDropout(0.5, name="drop")
    with pytest.raises(RuntimeError, match=r"drop: .*dropout_seed"):
        layer(X, training=True)
    with pytest.raises(RuntimeError, match="dropout_seed"):
        drop(layer, [1, 2])
        layer(X, training=True)


def test_rates_outside_of_the_unit_interval():
    for rate in (-0.1, 1.0):
        with pytest.raises(ValueError, match=f"rate must be .*, got {rate}"):
            layers.StatelessDropout(rate)


def test_serialization():
    layer = layers.StatelessDropout(0.3, [None, 1, 1, 1], name="drop")
    again = tf.keras.layers.deserialize(tf.keras.layers.serialize(layer))
    assert type(again) is layers.StatelessDropout
    assert (again.rate, again.noise_shape, again.name) == (0.3, (None, 1, 1, 1), "drop")


def backbone(rate):
    inputs = tf.keras.Input(support.IMAGE)
    h = tf.keras.layers.Dense(8)(tf.keras.layers.Flatten()(inputs))
    h = layers.StatelessDropout(rate)(h)
    return tf.keras.Model(inputs, tf.keras.layers.Dense(6, activation="relu")(h))


def train(rate, seed):
    spec = support.training_spec("fedavg")
    task = dataclasses.replace(spec.task, backbone=lambda: backbone(rate))
    process = build_process(dataclasses.replace(spec, task=task))
    return support.run_rounds(process, process.initialize(), {}, [[0, 1], [0, 3]], seed)[0]


@pytest.mark.integration
def test_rounds_with_dropout_are_a_function_of_the_seed(simulation):
    """Equal from one process to the next, whatever TensorFlow's own random state."""
    tf.random.set_seed(1)
    first = train(0.5, 0).weights
    tf.random.set_seed(2)
    support.assert_trees_equal(train(0.5, 0).weights, first)
    assert np.any(train(0.5, 1).weights["trainable"][0] != first["trainable"][0])
    assert np.any(train(0.0, 0).weights["trainable"][0] != first["trainable"][0])
