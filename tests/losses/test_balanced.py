"""The balanced softmax compared with its formula."""

import numpy as np
import pytest
import tensorflow as tf

from tff_pcdd import losses


def cross_entropy(logits, label):
    shifted = np.asarray(logits, np.float64) - np.max(logits)
    return np.log(np.exp(shifted).sum()) - shifted[label]


@pytest.mark.parametrize(("label", "expected"), [(0, np.log(4)), (1, np.log(4 / 3))])
def test_class_counts_act_as_priors(label, expected):
    logits = losses.balanced_logits([[0.0, 0.0]], [1, 3])
    assert cross_entropy(logits.numpy()[0], label) == pytest.approx(expected, rel=1e-6)


def test_a_missing_class_is_excluded():
    logits = tf.Variable([[0.3, -0.2]])
    with tf.GradientTape() as tape:
        loss = tf.nn.sparse_softmax_cross_entropy_with_logits(
            labels=[1], logits=losses.balanced_logits(logits, [0, 3])
        )
    assert float(loss[0]) == 0
    np.testing.assert_array_equal(tape.gradient(loss, logits), [[0, 0]])


def test_gamma_scales_the_prior():
    actual = losses.balanced_logits([[1.0, 2.0, 3.0]], tf.constant([2, 4, 8]), gamma=0.5)
    np.testing.assert_allclose(actual, [[1, 2, 3] + 0.5 * np.log([2, 4, 8])], rtol=1e-6)
