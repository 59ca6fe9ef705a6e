"""Predictions of a model, compared with NumPy."""

import numpy as np
import pytest
import tensorflow as tf

from tff_pcdd import data
from tff_pcdd.export import TrainedModel

SPEC = data.InputSpec("image", (1, 1, 4), "float32", scale=0.5)
LOGITS = np.array([[1.0, 3.0, 2.0, 0.0], [9e4, 8e4, 9.5e4, 1e4]], np.float32)


def model(own_classes):
    return TrainedModel(
        network=None,
        logits=lambda x: tf.reshape(x, [-1, 4]),
        input_spec=SPEC,
        class_names=tuple("abcd"),
        own_classes=own_classes,
    )


def softmax(logits):
    e = np.exp(logits - logits.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


def test_global_model_predicts_all_classes():
    answers = model(None).answer(tf.constant(LOGITS))
    assert set(answers) == {"probabilities", "class_id"}
    np.testing.assert_allclose(answers["probabilities"], softmax(LOGITS), rtol=1e-6)
    np.testing.assert_array_equal(answers["class_id"], [1, 2])


@pytest.mark.parametrize("own", [[0, 3], [2], [0, 1, 2, 3]])
def test_own_predictions_are_restricted_to_own_classes(own):
    answers = model(np.isin(range(4), own)).answer(tf.constant(LOGITS))
    expected = np.zeros((2, 4))
    expected[:, own] = softmax(LOGITS[:, own])
    np.testing.assert_allclose(answers["own_probabilities"], expected, rtol=1e-6)
    chosen = [own[i] for i in LOGITS[:, own].argmax(axis=1)]
    np.testing.assert_array_equal(answers["own_class_id"], chosen)
    np.testing.assert_allclose(answers["probabilities"], softmax(LOGITS), rtol=1e-6)


def test_own_predictions_of_a_client_without_samples_cover_all_classes():
    answers = model(np.zeros(4, bool)).answer(tf.constant(LOGITS))
    np.testing.assert_array_equal(answers["own_probabilities"], answers["probabilities"])
    np.testing.assert_array_equal(answers["own_class_id"], answers["class_id"])


def test_accuracy():
    """Stored inputs are normalized; the last batch is smaller than the others."""
    x = np.eye(4, dtype=np.float32)[[0, 1, 2, 3, 0]][:, None, None, :]
    examples = data.Examples(x, np.array([0, 1, 0, 3, 2], np.int32))
    assert model(None).accuracy(examples, batch_size=2) == pytest.approx(60)
    nothing = data.Examples(x[:0], np.zeros(0, np.int32))
    assert np.isnan(model(None).accuracy(nothing, batch_size=2))
