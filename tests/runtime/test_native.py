"""Computations in TFF's native form."""

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tff_pcdd.runtime import _graphs, _native


@pytest.mark.parametrize("channels", [6, 8])
def test_batch_normalization_of_any_number_of_channels_can_be_imported(channels):
    """TFF's compiler fuses it with the activation, and only multiples of 4 are imported so."""
    shape = [None, 2, 2, channels]
    mean = np.arange(channels, dtype=np.float32)

    @tff.tensorflow.computation(tff.TensorType(np.float32, shape))
    def normalize(x):
        ones = tf.ones(channels)
        y, *_ = tf.compat.v1.nn.fused_batch_norm(
            x, ones, 0 * ones, tf.constant(mean), 3 * ones, epsilon=1.0, is_training=False
        )
        return tf.nn.relu(y)

    compiled = _native.compile_for_import(normalize)
    proto = tff.framework.ConcreteComputation.get_proto(compiled).tensorflow
    graph = _graphs.Graph(proto, [tf.TensorSpec(shape, tf.float32)], "/device:CPU:0")
    x = np.random.default_rng(0).normal(3, 2, (2, 2, 2, channels)).astype(np.float32)
    (found,) = graph([tf.constant(x)])
    # The square root of variance and epsilon is 2.
    np.testing.assert_allclose(found, np.maximum((x - mean) / 2, 0), rtol=1e-6, atol=1e-6)
