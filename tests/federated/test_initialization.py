"""First weights are a function of the seed, whatever the layers."""

import numpy as np
import pytest
import tensorflow as tf

from tff_pcdd import layers
from tff_pcdd.federated import initialization


def dense():
    inputs = tf.keras.Input((5,))
    h = tf.keras.layers.Dense(5, activation="relu")(inputs)
    h = layers.BatchNormalization()(tf.keras.layers.Dense(5)(h))
    return tf.keras.Model(inputs, h)


def convolutional():
    inputs = tf.keras.Input((8, 8, 3))
    h = tf.keras.layers.Conv2D(3, 3, kernel_initializer="he_normal")(inputs)
    h = tf.keras.layers.DepthwiseConv2D(3)(h)
    h = tf.keras.layers.SeparableConv2D(3, 3)(h)
    return tf.keras.Model(inputs, tf.keras.layers.GlobalAveragePooling2D()(h))


def recurrent():
    inputs = tf.keras.Input((7,), dtype="int32")
    h = tf.keras.layers.Embedding(11, 4)(inputs)
    h = tf.keras.layers.LSTM(6, return_sequences=True)(h)
    return tf.keras.Model(inputs, tf.keras.layers.GRU(6)(h))


def nested():
    inputs = tf.keras.Input((5,))
    return tf.keras.Model(inputs, tf.keras.layers.Dense(2)(dense()(inputs)))


MODELS = pytest.mark.parametrize("make", [dense, convolutional, recurrent, nested])


def weights(make, seed, name="backbone"):
    with initialization.deferred() as first:
        made = make()
    first.assign({name: made}, seed)
    return [weight.numpy() for weight in made.weights]


@MODELS
def test_first_weights_are_a_function_of_the_seed(make):
    """Also where the global seeds of TensorFlow, NumPy and Python differ."""
    tf.keras.utils.set_random_seed(1)
    first = weights(make, 3)
    tf.keras.utils.set_random_seed(2)
    again, other = weights(make, 3), weights(make, 4)
    for a, b in zip(first, again, strict=True):
        np.testing.assert_array_equal(a, b)
    # Biases, moving averages and gains start alike under every seed.
    random = [np.unique(a).size > 2 for a in first]
    assert any(random)
    for a, b, drawn in zip(first, other, random, strict=True):
        assert np.array_equal(a, b) != drawn


def test_variables_of_the_same_shape_differ():
    first, second = (w for w in weights(dense, 0) if w.shape == (5, 5))
    assert not np.array_equal(first, second)


def test_a_piece_starts_alike_whatever_was_made_before_it():
    """Also where a method makes other pieces first; under another name it differs."""
    with initialization.deferred() as first:
        other, made = dense(), dense()
    first.assign({"other": other, "backbone": made}, 3)
    for expected, actual in zip(weights(dense, 3), made.weights, strict=True):
        np.testing.assert_array_equal(actual.numpy(), expected)
    for expected, actual in zip(weights(dense, 3, "other"), other.weights, strict=True):
        np.testing.assert_array_equal(actual.numpy(), expected)
    assert np.any(other.weights[0].numpy() != made.weights[0].numpy())


def test_weights_keep_the_distribution_of_their_initializer():
    def make():
        return tf.keras.Sequential(
            [
                tf.keras.layers.Dense(
                    300, kernel_initializer=tf.keras.initializers.RandomUniform(2, 3)
                )
            ]
        )

    def build():
        model = make()
        model.build((None, 300))
        return model

    kernel, bias = weights(build, 0)
    assert kernel.min() >= 2
    assert kernel.max() <= 3
    assert kernel.mean() == pytest.approx(2.5, abs=0.01)
    assert not bias.any()


def test_an_initializer_with_a_seed_of_its_own_keeps_it():
    initializer = tf.keras.initializers.GlorotUniform(seed=8)

    def make():
        layer = tf.keras.layers.Dense(3, kernel_initializer=initializer)
        layer.build((None, 4))
        return layer

    expected = tf.keras.initializers.GlorotUniform(seed=8)((4, 3)).numpy()
    for seed in (0, 1):
        np.testing.assert_array_equal(weights(make, seed)[0], expected)


@MODELS
def test_zeros(make):
    with initialization.zeros():
        made = make().weights
    assert made
    for weight in made:
        assert not weight.numpy().any()
    assert [w.shape for w in made] == [w.shape for w in make().weights]


def test_scopes_end():
    tf.keras.utils.set_random_seed(0)
    with initialization.zeros():
        pass
    with initialization.deferred():
        pass
    assert any(np.unique(weight).size > 2 for weight in dense().get_weights())
