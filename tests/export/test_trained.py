"""Predictions of a model, compared with NumPy."""

import dataclasses

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


def test_calibration_of_own_answers():
    """LOGITS, halved by the scale: own classes 0 and 3 of the second sample, 9e4 before 1e4."""
    x = np.array([[2, 6, 4, 0], [9, 8, 9.5, 1]], np.float32)[:, None, None, :]
    samples = data.Examples(x, np.array([0, 2], np.int32))
    nothing = data.Examples(x[:0], np.zeros(0, np.int32))
    found = model(np.array([True, False, False, True])).calibrate(samples, nothing, 2)
    assert found.before.accuracy == 50
    before, after = found.own
    assert before.accuracy == 50
    # Halved: 1 − 0 = 1, and 4.5 − 0.5 = 4.
    confidences = [1 / (1 + np.exp(-1)), 1 / (1 + np.exp(-4))]
    assert before.mean_confidence == pytest.approx(100 * np.mean(confidences), rel=1e-6)
    assert after is before
    assert model(None).calibrate(samples, nothing, 2).own is None


def test_accuracy():
    """Stored inputs are normalized; the last batch is smaller than the others."""
    x = np.eye(4, dtype=np.float32)[[0, 1, 2, 3, 0]][:, None, None, :]
    examples = data.Examples(x, np.array([0, 1, 0, 3, 2], np.int32))
    nothing = data.Examples(x[:0], np.zeros(0, np.int32))
    found = model(None).calibrate(examples, nothing, batch_size=2).before
    assert (found.accuracy, found.samples.sum()) == (pytest.approx(60), 5)


def test_a_temperature_changes_probabilities_but_no_prediction():
    """Neither where logits are equal after the division."""
    cooled = dataclasses.replace(model(np.isin(range(4), [0, 3])), temperature=50.0)
    answers = cooled.answer(tf.constant(LOGITS))
    np.testing.assert_allclose(answers["probabilities"], softmax(LOGITS / 50), atol=1e-6)
    np.testing.assert_array_equal(answers["class_id"], [1, 2])
    expected = np.zeros((2, 4))
    expected[:, [0, 3]] = softmax(LOGITS[:, [0, 3]] / 50)
    np.testing.assert_allclose(answers["own_probabilities"], expected, atol=1e-6)
    np.testing.assert_array_equal(answers["own_class_id"], [0, 0])
    close = tf.constant([[1.0, np.nextafter(np.float32(1), np.float32(2)), 0.0, 0.0]])
    assert dataclasses.replace(model(None), temperature=3.0).answer(close)["class_id"] == [1]


def test_calibration():
    """In batches, against the formulas for all samples at once."""
    draw = np.random.default_rng(0)
    logits = draw.normal(size=(60, 4)).astype(np.float32)
    labels = np.array([draw.choice(4, p=p) for p in softmax(3.0 * logits)], np.int32)
    # The input spec halves what is stored.
    examples = data.Examples(2 * logits[:, None, None, :], labels)
    found = model(None).calibrate(examples, examples, batch_size=7)
    grid = np.exp(np.linspace(np.log(0.02), np.log(10), 2000))
    losses = [-np.log(softmax(logits / t)[np.arange(60), labels]).mean() for t in grid]
    assert found.temperature == pytest.approx(grid[np.argmin(losses)], rel=0.01)
    assert found.held_out_samples == 60
    assert found.likelihood_ratio == pytest.approx(
        2 * 60 * (-np.log(softmax(logits)[np.arange(60), labels]).mean() - min(losses)), rel=1e-3
    )
    for answers, t in ((found.before, 1.0), (found.after, found.temperature)):
        confidence = softmax(logits / t).max(axis=1)
        right = logits.argmax(axis=1) == labels
        bins = np.ceil(15 * confidence)
        gaps = [abs(np.sum(right[bins == b]) - confidence[bins == b].sum()) for b in set(bins)]
        assert answers.error == pytest.approx(100 * sum(gaps) / 60, rel=1e-4)
    few = examples.take(np.arange(9))
    without = model(None).calibrate(examples, few, batch_size=7)
    assert np.isnan(without.temperature)
    assert without.after.error == without.before.error == pytest.approx(found.before.error)
