"""Contrastive losses compared with their formulas."""

import numpy as np
import pytest
import tensorflow as tf

from tff_pcdd import losses

ORTHOGONAL = np.log(1 + np.exp(-2))  # Cosines 1 and 0, temperature 1/2.


def test_model_contrast_of_features_in_the_global_direction():
    z = tf.constant([[2.0, 0.0]])
    assert float(losses.model_contrast(z, [[5.0, 0]], [[0, 1.0]], 0.5)) == pytest.approx(ORTHOGONAL)


def test_model_contrast_of_equal_models_is_log_two_without_gradient():
    z = tf.Variable([[1.0, 2.0], [0.5, -1.0]])
    other = tf.constant([[0.3, 1.0], [2.0, 2.0]])
    with tf.GradientTape() as tape:
        loss = losses.model_contrast(z, other, other, 0.5)
    assert float(loss) == pytest.approx(np.log(2))
    np.testing.assert_allclose(tape.gradient(loss, z), np.zeros([2, 2]), atol=1e-7)


def test_model_contrast_is_a_softmax_over_cosines():
    z, near, far = np.random.default_rng(0).normal(size=(3, 6, 4))

    def cosine(a, b):
        return (a * b).sum(1) / np.linalg.norm(a, axis=1) / np.linalg.norm(b, axis=1)

    to_global, to_previous = np.exp(cosine(z, near) / 0.3), np.exp(cosine(z, far) / 0.3)
    expected = -np.log(to_global / (to_global + to_previous)).mean()
    assert float(losses.model_contrast(z, near, far, 0.3)) == pytest.approx(expected, rel=1e-6)


def test_prototype_contrast_of_features_at_their_prototype():
    loss, known = losses.prototype_contrast(
        tf.constant([[3.0, 0.0]]), tf.constant([0]), [[1.0, 0], [0, 2.0]], [True, True], 0.5
    )
    assert float(loss) == pytest.approx(ORTHOGONAL) and bool(known)


def test_prototype_contrast_excludes_classes_without_prototype():
    generator = np.random.default_rng(1)
    z, prototypes = generator.normal(size=(7, 3)), generator.normal(size=(4, 3))
    labels, valid = np.array([0, 1, 2, 3, 2, 0, 1]), np.array([True, False, True, True])
    unit = z / np.linalg.norm(z, axis=1, keepdims=True)
    anchors = prototypes / np.linalg.norm(prototypes, axis=1, keepdims=True)
    scores = np.exp(unit @ anchors.T / 0.7) * valid
    chosen = valid[labels]
    picked = scores[np.arange(7), labels][chosen] / scores.sum(1)[chosen]
    loss, known = losses.prototype_contrast(z, labels, prototypes, valid, 0.7)
    assert float(loss) == pytest.approx(-np.log(picked).mean(), rel=1e-6) and bool(known)


def test_prototype_contrast_without_prototypes():
    z = tf.Variable(np.ones([2, 3]))
    with tf.GradientTape() as tape:
        loss, known = losses.prototype_contrast(z, [0, 1], tf.zeros([2, 3]), [False, False], 0.5)
    assert float(loss) == 0 and not bool(known)
    np.testing.assert_array_equal(tape.gradient(loss, z), np.zeros([2, 3]))
