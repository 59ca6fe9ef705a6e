"""Expected calibration error and temperatures, against loops and grids of NumPy."""

import math

import numpy as np
import pytest

from tff_pcdd.evaluation import calibration


def softmax(logits):
    powers = np.exp(logits - logits.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True)


def answers(samples, classes=4, scale=1.0, seed=0):
    """Logits whose softmax is the distribution of the labels if the scale is 1."""
    draw = np.random.default_rng(seed)
    logits = 2 * draw.normal(size=(samples, classes))
    labels = np.array([draw.choice(classes, p=p) for p in softmax(logits)], np.int64)
    return scale * logits, labels


def expected_error(logits, labels, bins=15):
    """Equation 3 of Guo et al., bin by bin."""
    probabilities = softmax(logits)
    confidence, right = probabilities.max(axis=1), probabilities.argmax(axis=1) == labels
    total = 0.0
    for m in range(1, bins + 1):
        inside = (confidence > (m - 1) / bins) & (confidence <= m / bins)
        if inside.any():
            total += inside.mean() * abs(right[inside].mean() - confidence[inside].mean())
    return 100 * total


@pytest.mark.parametrize("scale", [0.2, 1.0, 5.0])
def test_calibration_error(scale):
    logits, labels = answers(500, scale=scale)
    found = calibration.reliability(logits, labels)
    assert found.error == pytest.approx(expected_error(logits, labels))
    assert found.accuracy == pytest.approx(100 * np.mean(logits.argmax(axis=1) == labels))
    assert found.mean_confidence == pytest.approx(100 * softmax(logits).max(axis=1).mean())
    assert found.samples.sum() == 500
    assert len(found.samples) == 15


def test_edges_belong_to_the_lower_bin():
    """A confidence of exactly one half is in the first of two bins, a certain one in the last."""
    logits = np.array([[0.0, 0.0], [800.0, 0.0]])
    found = calibration.reliability(logits, np.array([0, 1]), bins=2)
    np.testing.assert_array_equal(found.samples, [1, 1])
    np.testing.assert_array_equal(found.correct, [1, 0])
    assert found.error == pytest.approx(50 * 0.5 + 50 * 1.0)


def test_answers_can_be_added():
    logits, labels = answers(90)
    parts = [calibration.reliability(logits[i::3], labels[i::3]) for i in range(3)]
    assert (parts[0] + parts[1] + parts[2]).error == pytest.approx(expected_error(logits, labels))


def test_without_samples():
    found = calibration.reliability(np.zeros((0, 3)), np.zeros(0, int))
    assert np.isnan([found.error, found.accuracy, found.mean_confidence]).all()
    assert np.isnan(calibration.negative_log_likelihood(np.zeros((0, 3)), np.zeros(0, int)))


def test_answers_that_are_not_finite_are_left_out():
    logits, labels = answers(60)
    damaged = np.concatenate([logits, [[np.nan, 0, 0, 0], [np.inf, 0, 0, 0]]])
    more = np.append(labels, [0, 0])
    assert calibration.reliability(damaged, more).samples.sum() == 60
    assert calibration.fit_temperature(damaged, more) == calibration.fit_temperature(logits, labels)


@pytest.mark.parametrize("scale", [0.05, 1.0, 20.0])
def test_temperature_minimizes_the_likelihood(scale):
    """Against a fine grid; it also undoes the scale."""
    logits, labels = answers(1000, scale=scale)

    def loss(temperature):
        return -np.log(softmax(logits / temperature)[np.arange(1000), labels]).mean()

    grid = np.exp(np.linspace(np.log(0.02), np.log(50), 2000))
    best = min(grid, key=loss)
    found = calibration.fit_temperature(logits, labels)
    assert found == pytest.approx(best, rel=0.01)
    assert found == pytest.approx(scale, rel=0.1)
    assert calibration.negative_log_likelihood(logits, labels, found) == pytest.approx(loss(found))
    after = calibration.reliability(logits, labels, found)
    assert after.error == pytest.approx(expected_error(logits / found, labels))


def test_bounds_of_the_temperature():
    """Of a model that is always wrong, or wrong once in many samples with large gaps."""
    logits = np.eye(3)[np.arange(30) % 3]
    wrong = (np.arange(30) + 1) % 3
    assert calibration.fit_temperature(logits, wrong) == pytest.approx(100, rel=1e-3)
    many, labels = np.tile([[0.001, 0.0]], (10**5, 1)), np.zeros(10**5, int)
    labels[0] = 1
    assert calibration.fit_temperature(many, labels) == pytest.approx(0.01, rel=1e-3)


def test_samples_that_determine_no_temperature():
    """Too few of them, or all classified correctly: then the best temperature would be 0."""
    logits, labels = answers(10)
    assert (logits.argmax(axis=1) != labels).any()
    assert calibration.fit_temperature(logits, labels) > 0
    assert np.isnan(calibration.fit_temperature(logits[:9], labels[:9]))
    assert np.isnan(calibration.fit_temperature(logits, logits.argmax(axis=1)))


@pytest.mark.parametrize(("samples", "scale", "uncertain"), [(13, 1.2, True), (400, 3.0, False)])
def test_few_samples_do_not_show_that_a_temperature_is_better(samples, scale, uncertain):
    """Twice the difference of the log-likelihoods, against (2 · 1.645)² = 10.8."""
    logits, labels = answers(samples, scale=scale)
    found = calibration.calibrate([(logits, labels)], (logits, labels))
    own = np.arange(samples), labels
    after, before = (np.log(softmax(logits / t)[own]).sum() for t in (found.temperature, 1))
    assert found.likelihood_ratio == pytest.approx(2 * (after - before))
    assert (2 * (after - before) < 10.8241) == found.is_uncertain == uncertain


def test_without_a_temperature_nothing_is_uncertain():
    logits, labels = answers(9)
    found = calibration.calibrate([(logits, labels)], (logits, labels))
    assert np.isnan(found.likelihood_ratio)
    assert not found.is_uncertain


@pytest.mark.parametrize(
    ("correct", "samples", "confidence"), [(0, 3, 0.6), (8, 10, 0.4), (3, 10, 0.6), (6, 10, 0.9)]
)
def test_a_bias_is_what_is_rare_by_chance(correct, samples, confidence):
    """The tail of the binomial distribution, term by term."""
    counts = range(correct, samples + 1) if correct > samples * confidence else range(correct + 1)
    tail = sum(
        math.comb(samples, k) * confidence**k * (1 - confidence) ** (samples - k) for k in counts
    )
    found = calibration.Reliability(
        np.array([samples]), np.array([samples * confidence]), np.array([correct])
    )
    assert found.is_biased == (tail < 0.025)


def test_extreme_confidences_have_a_bias_only_if_answers_differ():
    def biased(correct, samples, confidence):
        parts = np.array([samples]), np.array([samples * confidence]), np.array([correct])
        return calibration.Reliability(*parts).is_biased

    assert not biased(5, 5, 1.0)
    assert biased(4, 5, 1.0)
    assert not biased(0, 0, 0.0)
