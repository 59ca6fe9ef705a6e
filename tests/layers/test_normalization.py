"""Batch normalization with the unbiased moving variance, and feature normalization."""

import numpy as np
import pytest
import tensorflow as tf

from tff_pcdd import layers, losses


def _moments(inputs):
    axes = tuple(range(inputs.ndim - 1))
    return inputs.mean(axes), inputs.var(axes), inputs.var(axes, ddof=1)


def _check_against_numpy(layer, inputs, run):
    """One training step and one inference step of a new layer."""
    mean, biased, unbiased = _moments(inputs)
    expected = (inputs - mean) / np.sqrt(biased + 1e-5)
    np.testing.assert_allclose(run(inputs, True), expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(layer.moving_mean, 0.1 * mean, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(layer.moving_variance, 0.9 + 0.1 * unbiased, rtol=1e-5)
    expected = (inputs - 0.1 * mean) / np.sqrt(0.9 + 0.1 * unbiased + 1e-5)
    np.testing.assert_allclose(run(inputs, False), expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(layer.moving_mean, 0.1 * mean, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("shape", [(5, 3), (4, 6, 5, 3), (2, 1, 1, 3)])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("compiled", [False, True])
def test_batch_normalization_matches_numpy(shape, dtype, compiled):
    inputs = np.random.default_rng(0).normal(2.0, 3.0, size=shape).astype(dtype)
    layer = layers.BatchNormalization(dtype=dtype)
    assert isinstance(layer, tf.keras.layers.BatchNormalization)
    layer.build([None, *shape[1:]])
    run = tf.function(layer, reduce_retracing=True) if compiled else layer
    _check_against_numpy(layer, inputs, lambda x, training: run(x, training=training))


def test_training_can_be_a_tensor():
    inputs = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)
    layer = layers.BatchNormalization()
    layer.build([None, 3])
    run = tf.function(lambda x, training: layer(x, training=training))
    _check_against_numpy(layer, inputs, lambda x, training: run(x, tf.constant(training)))


def test_updates_happen_in_loops_with_unknown_batch_size():
    inputs = np.random.default_rng(0).normal(size=(7, 3)).astype(np.float32)
    layer = layers.BatchNormalization()
    layer.build([None, 3])

    @tf.function(input_signature=[tf.TensorSpec([None, 3])])
    def run(x):
        total = tf.zeros([])
        for _ in tf.range(3):
            total += tf.reduce_sum(layer(x, training=True))
        return total

    run(inputs)
    mean, _, unbiased = _moments(inputs)
    np.testing.assert_allclose(layer.moving_mean, (1 - 0.9**3) * mean, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(layer.moving_variance, 0.9**3 + (1 - 0.9**3) * unbiased, rtol=1e-5)


def test_updates_happen_in_a_tf1_graph_that_fetches_the_output():
    inputs = np.random.default_rng(0).normal(size=(7, 3)).astype(np.float32)
    graph = tf.Graph()
    with graph.as_default():
        layer = layers.BatchNormalization()
        output = layer(tf.constant(inputs), training=True)
        initialize = [weight.initializer for weight in layer.weights]
        mean = tf.identity(layer.moving_mean)
    with tf.compat.v1.Session(graph=graph) as session:
        session.run(initialize)
        session.run(output)
        np.testing.assert_allclose(session.run(mean), 0.1 * inputs.mean(0), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("mode", ["bn", "bn_l2"])
def test_updates_happen_in_a_function_inside_a_tf1_graph(mode):
    inputs = np.random.default_rng(0).normal(size=(12, 3)).astype(np.float32)
    graph = tf.Graph()
    with graph.as_default():
        layer = layers.FeatureNormalization(mode)
        layer.build([None, 3])

        @tf.function
        def run(dataset):
            total = tf.zeros([])
            for batch in dataset:
                total += tf.reduce_sum(layer(batch, training=True))
            return total

        total = run(tf.data.Dataset.from_tensor_slices(inputs).batch(6))
        initialize = [weight.initializer for weight in layer.weights]
        mean = tf.identity(layer.batch_normalization.moving_mean)
    with tf.compat.v1.Session(graph=graph) as session:
        session.run(initialize)
        session.run(total)
        expected = 0.09 * inputs[:6].mean(0) + 0.1 * inputs[6:].mean(0)
        np.testing.assert_allclose(session.run(mean), expected, rtol=1e-5, atol=1e-6)


def test_no_updates_when_frozen_or_while_a_model_is_built():
    inputs = tf.keras.Input([3])
    layer = layers.BatchNormalization()
    model = tf.keras.Model(inputs, layer(inputs, training=True))
    np.testing.assert_array_equal(layer.moving_variance, np.ones(3))
    model(np.array([[1.0, 2.0, 3.0], [3.0, 2.0, 1.0]], np.float32))
    np.testing.assert_allclose(layer.moving_mean, [0.2, 0.2, 0.2], rtol=1e-6)
    layer.trainable = False
    before = layer.moving_mean.numpy()
    layer(np.ones((2, 3), np.float32), training=True)
    np.testing.assert_array_equal(layer.moving_mean, before)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_results_are_finite_for_batches_of_one_and_of_none(dtype):
    layer = layers.BatchNormalization(dtype=dtype)
    np.testing.assert_allclose(layer(np.full((1, 3), 7.0, dtype), training=True), 0.0, atol=1e-4)
    np.testing.assert_allclose(layer.moving_mean, 0.7, rtol=1e-6)
    np.testing.assert_array_equal(layer.moving_variance, np.ones(3))
    layer(np.zeros((0, 3), dtype), training=True)
    np.testing.assert_allclose(layer.moving_mean, 0.7, rtol=1e-6)
    np.testing.assert_array_equal(layer.moving_variance, np.ones(3))


@pytest.mark.parametrize("shape", [(5, 3), (4, 6, 5, 3)])
def test_half_precision_keeps_float32_statistics(shape):
    inputs = np.random.default_rng(0).normal(size=shape).astype(np.float16)
    layer = layers.BatchNormalization(dtype=tf.keras.mixed_precision.Policy("mixed_float16"))
    assert layer(inputs, training=True).dtype == tf.float16
    mean, _, unbiased = _moments(inputs.astype(np.float32))
    np.testing.assert_allclose(layer.moving_mean, 0.1 * mean, rtol=1e-3, atol=1e-5)
    np.testing.assert_allclose(layer.moving_variance, 0.9 + 0.1 * unbiased, rtol=1e-3)


def test_batch_normalization_survives_serialization():
    layer = layers.BatchNormalization(momentum=0.1, scale=False, name="last")
    layer.build([None, 4, 4, 3])
    again = tf.keras.layers.deserialize(tf.keras.layers.serialize(layer))
    assert type(again) is layers.BatchNormalization
    assert again.momentum == 0.1 and again.epsilon == 1e-5 and not again.scale
    again.build([None, 3])
    assert len(again.weights) == 3


def test_batch_normalization_errors():
    for arguments in ({"axis": 1}, {"renorm": True}, {"virtual_batch_size": 2}):
        with pytest.raises(ValueError, match="not supported"):
            layers.BatchNormalization(**arguments)
    with pytest.raises(ValueError, match="2-D or 4-D"):
        layers.BatchNormalization()(np.zeros((2, 3, 4), np.float32))


def test_feature_normalization_modes():
    features = np.random.default_rng(0).normal(2.0, 3.0, size=(6, 4)).astype(np.float32)
    mean, biased, _ = _moments(features)
    standard = (features - mean) / np.sqrt(biased + 1e-5)
    expected = {
        "none": features,
        "bn": standard,
        "l2": features / np.linalg.norm(features, axis=1, keepdims=True),
        "bn_l2": standard / np.linalg.norm(standard, axis=1, keepdims=True),
    }
    for mode in layers.NORMALIZATION_MODES:
        layer = layers.FeatureNormalization(mode)
        np.testing.assert_allclose(layer(features, training=True), expected[mode], rtol=1e-4)
        assert len(layer.trainable_weights) == (2 if mode.startswith("bn") else 0)
        assert type(layer).from_config(layer.get_config()).mode == mode
    zeros = layers.FeatureNormalization("l2")(np.zeros((1, 4), np.float32))
    np.testing.assert_array_equal(zeros, np.zeros((1, 4)))
    with pytest.raises(ValueError, match="mode must be one of"):
        layers.FeatureNormalization("layer")


def test_golden_feature_normalization(golden):
    z = golden("fedgela")
    layer = layers.FeatureNormalization("bn")
    raw = z["h_raw"].astype(np.float32)
    np.testing.assert_allclose(layer(raw, training=True), z["h_bn_train"], rtol=1e-5, atol=1e-6)
    inner = layer.batch_normalization
    np.testing.assert_allclose(inner.moving_mean, z["bn_running_mean_after1"], rtol=1e-5)
    np.testing.assert_allclose(inner.moving_variance, z["bn_running_var_after1"], rtol=1e-5)
    np.testing.assert_allclose(layer(raw), z["bn_eval_feat_after1"], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("masked", [False, True])
def test_golden_gradient_through_batch_statistics(golden, masked):
    z = golden("fedgela")
    name = f"bn_{'masked' if masked else 'unmasked'}"
    layer = layers.FeatureNormalization("bn")
    for index, temperature in enumerate(z["temperatures"]):
        raw = tf.Variable(z["h_raw"], dtype=tf.float32)
        with tf.GradientTape() as tape:
            logits = losses.etf_logits(
                layer(raw, training=True),
                z["etf_f32"],
                z["phi"],
                scale=1.0 / temperature,
                normalize=False,
            )
            if masked:
                logits = losses.mask_logits(logits, z["phi"])
            loss = tf.reduce_mean(
                tf.nn.sparse_softmax_cross_entropy_with_logits(labels=z["labels"], logits=logits)
            )
        np.testing.assert_allclose(loss, z[f"{name}_loss"][index], rtol=1e-5)
        expected = z[f"{name}_grad_h_raw"][index]
        tolerance = 1e-4 if temperature > 1e-4 else 1e-3
        difference = np.abs(tape.gradient(loss, raw) - expected).max()
        assert difference <= tolerance * np.abs(expected).max()


def test_golden_residual_block(golden):
    z = golden("resnet_block_stride2")

    def norm(name):
        layer = layers.BatchNormalization()
        layer.build([None, None, None, 3])
        names = ("weight", "bias", "running_mean", "running_var")
        layer.set_weights([z[f"{name}_{array}"] for array in names])
        return layer

    def convolve(inputs, name, stride, padding):
        kernel = tf.constant(z[f"{name}_weight"].transpose(2, 3, 1, 0), tf.float32)
        pads = [[0, 0], [padding, padding], [padding, padding], [0, 0]]
        return tf.nn.conv2d(inputs, kernel, stride, pads)

    norms = {name: norm(name) for name in ("bn1", "bn2", "downsample_1")}

    def block(inputs, training):
        hidden = convolve(inputs, "conv1", 2, 1)
        hidden = tf.nn.relu(norms["bn1"](hidden, training=training))
        hidden = norms["bn2"](convolve(hidden, "conv2", 1, 1), training=training)
        shortcut = convolve(inputs, "downsample_0", 2, 0)
        return tf.nn.relu(hidden + norms["downsample_1"](shortcut, training=training))

    inputs = tf.constant(z["x_nchw"].transpose(0, 2, 3, 1), tf.float32)
    for training, array in ((True, "y_train_nchw"), (False, "y_eval_after1_nchw")):
        expected = z[array].transpose(0, 2, 3, 1)
        np.testing.assert_allclose(block(inputs, training), expected, rtol=1e-4, atol=1e-5)
    for name, layer in norms.items():
        np.testing.assert_allclose(
            layer.moving_mean, z[f"{name}_running_mean_after1"], rtol=1e-5, atol=1e-6
        )
        np.testing.assert_allclose(
            layer.moving_variance, z[f"{name}_running_var_after1"], rtol=1e-5
        )
