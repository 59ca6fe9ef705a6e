"""Fixed and adapted ETF heads as Keras layers."""

import numpy as np
import pytest
import tensorflow as tf

from tff_pcdd import layers, losses


@pytest.fixture
def features():
    return np.random.default_rng(0).normal(size=(6, 8)).astype(np.float32)


@pytest.fixture
def policy(request):
    tf.keras.mixed_precision.set_global_policy(request.param)
    yield request.param
    tf.keras.mixed_precision.set_global_policy("float32")


def test_fixed_etf_equals_etf_logits_of_the_seeds_frame(features):
    head = layers.FixedETF(5, seed=3, scale=20.0)
    expected = losses.etf_logits(features, layers.simplex_etf(8, 5, seed=3), scale=20.0)
    np.testing.assert_allclose(head(features), expected, rtol=1e-6)
    assert [weight.name.split("/")[-1] for weight in head.non_trainable_weights] == ["etf:0"]
    assert not head.trainable_weights and head.etf.dtype == tf.float32


def test_adapted_etf_takes_a_pair_or_two_arguments(features):
    phi = np.array([2.5, 0.0, 1.5, 1.0, 0.0], np.float32)
    head = layers.AdaptedETF(5, seed=3, scale=20.0)
    expected = losses.etf_logits(features, layers.simplex_etf(8, 5, seed=3), phi, scale=20.0)
    np.testing.assert_allclose(head((features, phi)), expected, rtol=1e-6)
    np.testing.assert_allclose(head(features, phi), expected, rtol=1e-6)
    masked = layers.AdaptedETF(5, seed=3, scale=20.0, masked=True)((features, phi))
    np.testing.assert_allclose(masked, losses.mask_logits(expected, phi), rtol=1e-6)


def test_adapted_etf_with_phi_one_equals_fixed_etf(features):
    fixed = layers.FixedETF(5, seed=1)(features)
    np.testing.assert_array_equal(layers.AdaptedETF(5, seed=1)(features, np.ones(5)), fixed)


def test_heads_in_functional_models_survive_saving(features, tmp_path):
    inputs, phi = tf.keras.Input([8]), tf.keras.Input([5])
    normalized = layers.FeatureNormalization("bn")(inputs)
    outputs = [
        layers.FixedETF(5, seed=3, scale=2.0, normalize=False)(normalized),
        layers.AdaptedETF(5, seed=3, masked=True)((normalized, phi)),
    ]
    model = tf.keras.Model([inputs, phi], outputs)
    stretch = np.tile(np.array([[2.0, 0.0, 1.0, 1.0, 1.0]], np.float32), (6, 1))
    clone = tf.keras.Model.from_config(model.get_config())
    model.save(tmp_path / "model.keras")
    loaded = tf.keras.models.load_model(tmp_path / "model.keras")
    for expected, *others in zip(
        *(net([features, stretch]) for net in (model, clone, loaded)), strict=True
    ):
        for other in others:
            np.testing.assert_array_equal(other, expected)


def test_loaded_weights_replace_the_frame(features):
    head, other = layers.FixedETF(5, seed=3), layers.FixedETF(5, seed=4)
    expected = other(features)
    head.build([None, 8])
    head.set_weights(other.get_weights())
    np.testing.assert_array_equal(head(features), expected)


@pytest.mark.parametrize("policy", ["mixed_float16", "mixed_bfloat16"], indirect=True)
def test_heads_compute_in_float32_under_mixed_precision(features, policy):
    del policy
    phi = np.array([5.0, 0.0, 0.0, 0.0, 0.0], np.float32)
    for head, args in (
        (layers.FixedETF(5, seed=3, scale=1e5), ()),
        (layers.AdaptedETF(5, seed=3, scale=1e5), (phi,)),
        (layers.FeatureNormalization("bn_l2"), ()),
    ):
        output = head(features, *args)
        assert output.dtype == tf.float32 and np.isfinite(output).all()
        assert all(weight.dtype == tf.float32 for weight in head.weights)
        again = type(head).from_config(head.get_config())
        np.testing.assert_array_equal(again(features, *args), output)


def test_weights_can_be_created_as_zeros_and_assigned_later(features):
    def zeros(next_creator, **kwargs):
        kwargs["initial_value"] = tf.zeros(kwargs["shape"], kwargs["dtype"])
        return next_creator(**kwargs)

    graph = tf.Graph()
    with graph.as_default(), tf.variable_creator_scope(zeros):
        head = layers.FixedETF(5, seed=3)
        logits = head(tf.constant(features))
        assign = head.etf.assign(layers.simplex_etf(8, 5, seed=9))
    with tf.compat.v1.Session(graph=graph) as session:
        session.run(head.etf.initializer)
        assert not session.run(logits).any()
        session.run(assign.op)
        result = session.run(logits)
    expected = losses.etf_logits(features, layers.simplex_etf(8, 5, seed=9))
    np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-6)


def test_errors(features):
    with pytest.raises(ValueError, match="num_classes >= 2, got 1"):
        layers.FixedETF(1, seed=0)
    with pytest.raises(ValueError, match="num_classes >= 2, got 0"):
        layers.AdaptedETF(0, seed=0)
    with pytest.raises(ValueError, match="feature_dim=8 and num_classes=9"):
        layers.FixedETF(9, seed=0)(features)
    with pytest.raises(ValueError, match="feature_dim=8 and num_classes=9"):
        layers.AdaptedETF(9, seed=0)(features, np.ones(9))
    with pytest.raises(ValueError, match=r"takes \(features, phi\)"):
        layers.AdaptedETF(5, seed=0)(features)
