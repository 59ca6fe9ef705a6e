"""The loss layers return the values of the loss functions."""

import numpy as np
import pytest
import tensorflow as tf

from tff_pcdd import layers, losses

_RNG = np.random.default_rng(0)
_FEATURES = _RNG.normal(size=(8, 5)).astype(np.float32)
_LABELS = np.array([0, 0, 1, 1, 1, 2, 0, 2])
_PROTOTYPES = _RNG.normal(size=(4, 5)).astype(np.float32)
_VALID = np.array([True, True, False, True])
_PSI = _RNG.normal(size=(5, 3)).astype(np.float32)
_MASK = np.array([[1, 0, 1], [1, 1, 0], [0, 1, 1], [1, 1, 1], [1, 0, 0]], np.float32)

_CASES = [
    (
        layers.IntraClassDecorrelation(4, form="offdiagonal", weight=0.5),
        (_FEATURES, _LABELS),
        lambda *inputs: 0.5 * losses.intra_class(*inputs, 4, "offdiagonal"),
    ),
    (
        layers.InterClassMargin(reading="missing", weight=2.0),
        (_FEATURES, _LABELS, _PROTOTYPES, _VALID),
        lambda *inputs: 2.0 * losses.inter_class(*inputs, "missing"),
    ),
    (
        layers.EqualNorm(norm=0.3, weight=2.0),
        (_PSI, _MASK),
        lambda *inputs: 2.0 * losses.equal_norm(*inputs, 0.3),
    ),
    (layers.EqualNorm(), (_PSI,), losses.equal_norm),
    (layers.MaximalAngle(weight=3.0), (_PSI, _MASK), lambda *i: 3.0 * losses.maximal_angle(*i)),
    (layers.MaximalAngle(), (_PSI,), losses.maximal_angle),
]


@pytest.mark.parametrize(("layer", "inputs", "expected"), _CASES)
def test_layers_return_and_register_the_weighted_loss(layer, inputs, expected):
    inputs = tuple(map(tf.constant, inputs))
    for loss in (
        layer(*inputs),
        layer(inputs),
        type(layer).from_config(layer.get_config())(*inputs),
    ):
        assert loss.dtype == tf.float32 and loss.shape == ()
        np.testing.assert_allclose(loss, expected(*inputs), rtol=1e-6)
    layer(*inputs)
    np.testing.assert_allclose(layer.losses, [expected(*inputs)], rtol=1e-6)
    again = tf.keras.layers.deserialize(tf.keras.layers.serialize(layer))
    assert type(again) is type(layer) and again.get_config() == layer.get_config()


def test_numpy_inputs_and_a_sample_mask():
    mask = np.arange(8) < 5
    loss = layers.InterClassMargin()(_FEATURES, _LABELS, _PROTOTYPES, _VALID, mask)
    expected = losses.inter_class(_FEATURES[:5], _LABELS[:5], _PROTOTYPES, _VALID)
    np.testing.assert_allclose(loss, expected, rtol=1e-5)


def test_fit_adds_the_loss_of_a_layer_in_the_model():
    features, labels = tf.keras.Input([5]), tf.keras.Input([], dtype=tf.int64)
    hidden = tf.keras.layers.Dense(5, kernel_initializer="identity")(features)
    penalty = layers.IntraClassDecorrelation(4, weight=0.1)((hidden, labels))
    model = tf.keras.Model([features, labels], [hidden, penalty])
    model.compile("sgd")
    history = model.fit([_FEATURES, _LABELS], batch_size=8, verbose=0)
    expected = 0.1 * losses.intra_class(_FEATURES, _LABELS, 4)
    np.testing.assert_allclose(history.history["loss"], [expected], rtol=1e-5)


@pytest.mark.parametrize("policy", ["mixed_float16", "mixed_bfloat16"])
def test_layers_compute_in_float32_under_mixed_precision(policy):
    tf.keras.mixed_precision.set_global_policy(policy)
    try:
        loss = layers.IntraClassDecorrelation(4)(_FEATURES, _LABELS)
    finally:
        tf.keras.mixed_precision.set_global_policy("float32")
    np.testing.assert_allclose(loss, losses.intra_class(_FEATURES, _LABELS, 4), rtol=1e-6)


def test_errors():
    with pytest.raises(ValueError, match="form must be one of"):
        layers.IntraClassDecorrelation(4, form="trace")
    with pytest.raises(ValueError, match="reading must be one of"):
        layers.InterClassMargin(reading="literal")
