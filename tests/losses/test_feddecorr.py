"""FedDecorr's penalty compared with its formula."""

import numpy as np
import pytest
import tensorflow as tf

from tff_pcdd import losses

FEATURES = np.random.default_rng(0).normal(size=(7, 5)) @ np.random.default_rng(1).normal(
    size=(5, 5)
)


def expected(features, form):
    """From NumPy's own correlation matrix."""
    number, width = features.shape
    correlation = np.corrcoef(features, rowvar=False)
    if form == "paper":
        return np.linalg.norm(correlation) ** 2 / width**2
    off_diagonal = ((number - 1) * correlation)[~np.eye(width, dtype=bool)]
    return np.mean(off_diagonal**2) / number


@pytest.mark.parametrize("form", losses.DECORRELATION_FORMS)
def test_formula(form):
    actual = losses.decorrelation(tf.constant(FEATURES, tf.float32), form)
    assert float(actual) == pytest.approx(expected(FEATURES, form), rel=1e-5)


@pytest.mark.parametrize("form", losses.DECORRELATION_FORMS)
def test_gradient(form):
    """Central differences of the formula."""
    features, difference = tf.Variable(FEATURES), 1e-5
    with tf.GradientTape() as tape:
        loss = losses.decorrelation(features, form)
    actual = tape.gradient(loss, features).numpy()
    for index in [(0, 0), (3, 2), (6, 4)]:
        shift = np.zeros_like(FEATURES)
        shift[index] = difference
        ends = [expected(FEATURES + sign * shift, form) for sign in (1, -1)]
        assert actual[index] == pytest.approx((ends[0] - ends[1]) / (2 * difference), rel=1e-4)


def test_scale_of_features_has_no_influence():
    scaled = FEATURES * [1, 10, 0.1, 3, 100] + [5, 0, -1, 2, 0]
    for form in losses.DECORRELATION_FORMS:
        value = losses.decorrelation(scaled, form)
        assert float(value) == pytest.approx(expected(FEATURES, form), rel=1e-5)


def test_two_features_that_are_the_same():
    column = np.arange(4.0)[:, None]
    assert float(losses.decorrelation(np.hstack([column, column]), "paper")) == pytest.approx(1)
    # Sums of products of standardized features are 3, over 4 samples.
    assert float(losses.decorrelation(np.hstack([column, column]))) == pytest.approx(9 / 4)


@pytest.mark.parametrize("form", losses.DECORRELATION_FORMS)
@pytest.mark.parametrize("features", [np.ones([1, 3]), np.ones([4, 3])])
def test_nothing_to_correlate(features, form):
    """A single sample, and features that are all the same."""
    features = tf.Variable(features)
    with tf.GradientTape() as tape:
        loss = losses.decorrelation(features, form)
    assert float(loss) == 0
    np.testing.assert_array_equal(tape.gradient(loss, features), np.zeros(features.shape))


def test_unknown_form():
    with pytest.raises(ValueError, match="form must be one of code, paper, got 'frobenius'"):
        losses.decorrelation(FEATURES, "frobenius")
