"""The simplex ETF."""

import numpy as np
import pytest
import tensorflow as tf

from tff_pcdd import layers


@pytest.mark.parametrize("shape", [(2, 2), (5, 5), (84, 10), (512, 100)])
def test_columns_are_a_simplex(shape):
    etf = layers.simplex_etf(*shape, seed=3)
    assert etf.dtype == np.float32 and etf.shape == shape
    classes = shape[1]
    gram = np.where(np.eye(classes, dtype=bool), 1.0, -1.0 / (classes - 1))
    np.testing.assert_allclose(etf.T @ etf, gram, atol=1e-5)


def test_frame_depends_on_the_seed_only():
    first = layers.simplex_etf(16, 4, seed=1)
    np.testing.assert_array_equal(first, layers.simplex_etf(16, 4, seed=1))
    assert np.abs(first - layers.simplex_etf(16, 4, seed=2)).max() > 0.1


def test_impossible_shapes_raise():
    with pytest.raises(ValueError, match="feature_dim=3 and num_classes=10") as error:
        layers.simplex_etf(3, 10, seed=0)
    assert "\n" not in str(error.value)
    with pytest.raises(ValueError, match="num_classes >= 2, got 1"):
        layers.simplex_etf(3, 1, seed=0)
    with pytest.raises(ValueError, match="feature_dim=2 and num_classes=3"):
        layers.etf_from_matrix(np.ones((2, 3)))


def test_initializer_survives_serialization():
    initializer = layers.SimplexETFInitializer(seed=5)
    config = tf.keras.initializers.serialize(initializer)
    again = tf.keras.initializers.deserialize(config)
    np.testing.assert_array_equal(again((8, 3)), layers.simplex_etf(8, 3, seed=5))


def test_golden_frame(golden):
    z = golden("fedgela")
    etf = layers.etf_from_matrix(z["etf_rand_a"])
    np.testing.assert_allclose(etf, z["etf_f64"], atol=1e-12)
    np.testing.assert_allclose(etf.T @ etf, z["etf_gram"], atol=1e-12)
    np.testing.assert_allclose(etf, z["etf_f32"], atol=1e-6)
