"""Backbones that are not in the package: registered classes and wrapped functions."""

import dataclasses
import functools

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.keras.layers import Activation, Conv2D, Dense, Flatten

from tests import support
from tests.data.refusals import refuses
from tff_pcdd import models, settings
from tff_pcdd.errors import SettingError
from tff_pcdd.federated import build_process
from tff_pcdd.federated import state as states
from tff_pcdd.settings import option

SHAPE = (2, 3, 1)


@pytest.fixture
def registered(monkeypatch):
    """A backbone registered outside of the package, for one test."""
    monkeypatch.setattr(models.registry, "_classes", dict(models.registry.classes()))

    @models.register
    @dataclasses.dataclass(frozen=True)
    class Mine(models.ImageBackbone):
        name = "mine"
        copies: int = option(1, "How often features are repeated.", minimum=1, group="Model")

        def network(self, input_shape, projection_dim):
            inputs = tf.keras.Input(input_shape)
            features = tf.keras.layers.Flatten()(inputs)
            features = tf.keras.layers.Concatenate()([features, features][: self.copies])
            return tf.keras.Model(inputs, models.project(features, projection_dim))

    return Mine


@pytest.mark.usefixtures("registered")
def test_a_registered_backbone_is_known_by_its_name():
    assert "mine" in models.names()
    assert models.names() == sorted(models.names())
    assert models.create("mine").build(SHAPE).output_shape == (None, 6)
    assert models.create("mine").build(SHAPE, projection_dim=4).output_shape == (None, 4)
    assert models.create("mine", copies=2).build(SHAPE).output_shape == (None, 12)


def test_its_options_are_settings(registered):
    described = {setting.name: setting for setting in settings.describe(models.ModelConfig)}
    assert described["copies"].applies_to == ("mine",)
    assert described["copies"].chosen_by == "model"
    config = settings.build(models.ModelConfig, {"model": "mine", "copies": 2})
    assert config.backbone == registered(copies=2)
    assert settings.flatten(config)["copies"] == 2
    with pytest.raises(SettingError) as error:
        settings.build(models.ModelConfig, {"model": "mlp", "copies": 2})
    assert (error.value.setting, error.value.reason) == ("copies", "applies only with model=mine")


def functional(input_shape):
    inputs = tf.keras.Input(input_shape)
    h = tf.keras.layers.Dense(5, "relu")(tf.keras.layers.Flatten()(inputs))
    return tf.keras.Model(inputs, h)


def sequential(input_shape):
    """It gets to know the shape of its input from the first call."""
    return tf.keras.Sequential([tf.keras.layers.Flatten(), tf.keras.layers.Dense(5, "relu")])


class Subclassed(tf.keras.Model):
    def __init__(self):
        super().__init__()
        self.flatten = tf.keras.layers.Flatten()
        self.hidden = tf.keras.layers.Dense(5, "relu")

    def call(self, inputs):
        return self.hidden(self.flatten(inputs))


@pytest.mark.parametrize("function", [functional, sequential, lambda shape: Subclassed()])
@pytest.mark.parametrize("projection_dim", [0, 4])
def test_keras_models_are_backbones(function, projection_dim):
    backbone = models.KerasBackbone(function, name="mine")
    model = backbone.build(SHAPE, projection_dim=projection_dim)
    assert model.output_shape == (None, projection_dim or 5)
    x = np.random.default_rng(0).normal(size=(3, *SHAPE)).astype(np.float32)
    kernel, bias, *projection = (weight.numpy() for weight in model.weights)
    expected = np.maximum(x.reshape(3, -1) @ kernel + bias, 0)
    if projection_dim:
        expected = expected @ projection[0] + projection[1]
    np.testing.assert_allclose(model(x), expected, rtol=1e-4, atol=1e-6)


class ConvolutionInside(tf.keras.layers.Layer):
    """A layer that calls a convolution, of which Keras then knows no shape."""

    def __init__(self):
        super().__init__()
        self.inner = Conv2D(1, 1, kernel_initializer="ones")

    def call(self, inputs):
        return self.inner(inputs)


def with_a_convolution_inside(inputs):
    return ConvolutionInside()(inputs)


def with_a_convolution_of_two_sizes(inputs):
    twice = Conv2D(1, 1, kernel_initializer="ones")
    return twice(tf.keras.layers.ZeroPadding2D(1)(twice(inputs)))


def with_a_convolution_of_each_row(inputs):
    rows = tf.keras.layers.Reshape((2, 1, 3, 1))(inputs)
    return tf.keras.layers.TimeDistributed(Conv2D(1, 1, kernel_initializer="ones"))(rows)


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@pytest.mark.parametrize(
    "layers, padding",
    [
        (with_a_convolution_inside, 0),
        (with_a_convolution_of_two_sizes, 1),
        (with_a_convolution_of_each_row, 0),
    ],
)
def test_convolutions_without_a_known_size_are_part_of_backbones(layers, padding, precision):
    def function(input_shape):
        inputs = tf.keras.Input(input_shape)
        return tf.keras.Model(inputs, Flatten()(layers(inputs)))

    model = models.KerasBackbone(function).build(SHAPE, precision=precision)
    x = np.arange(12, dtype=np.float32).reshape(2, *SHAPE)
    # A kernel of one 1 leaves the pixels as they are.
    expected = np.pad(x, [(0, 0), (padding, padding), (padding, padding), (0, 0)])
    np.testing.assert_array_equal(model(x), expected.reshape(2, -1))


def test_keras_models_of_text():
    def embed(input_shape):
        inputs = tf.keras.Input(input_shape, dtype="int32")
        return tf.keras.Model(
            inputs, tf.keras.layers.LSTM(3)(tf.keras.layers.Embedding(9, 2)(inputs))
        )

    model = models.KerasBackbone(embed).build((7,), vocabulary_size=9)
    assert model(np.zeros([2, 7], np.int32)).shape == (2, 3)


def test_a_keras_backbone_is_a_setting_from_python():
    backbone = models.KerasBackbone(functional, name="mine")
    config = models.ModelConfig(backbone=backbone)
    assert config.backbone.initial_values(SHAPE) is None
    assert settings.flatten(config)["model"] == "mine"
    assert "mine" not in models.names()
    with pytest.raises(SettingError, match="must be a Backbone") as error:
        models.ModelConfig(backbone=functional)
    assert error.value.setting == "model"
    assert models.ModelConfig(backbone="resnet18") == models.ModelConfig(
        backbone=models.create("resnet18")
    )


def test_a_keras_backbone_trains(simulation):
    backbone = models.KerasBackbone(functional)
    spec = support.training_spec("fedavg")
    with tf.Graph().as_default():
        width = backbone.build(support.IMAGE).output_shape[-1]
    task = dataclasses.replace(
        spec.task, feature_dim=width, backbone=lambda: backbone.build(support.IMAGE)
    )
    process = build_process(dataclasses.replace(spec, task=task))
    first = process.initialize()
    state, _, _ = support.run_rounds(process, first, {}, [[0, 1], [0, 3]])
    before, after = (np.asarray(s.weights["trainable"][0]) for s in (first, state))
    assert before.shape == (16, 5)
    assert np.all(np.isfinite(after)) and np.any(after != before)


def with_weights_of_its_own(input_shape):
    model = functional(input_shape)
    hidden = tf.keras.layers.Dense(5, trainable=False)
    model = tf.keras.Model(model.input, tf.keras.layers.Dense(3)(hidden(model.output)))
    model.layers[2].kernel.assign(np.full((16, 5), 7.0))
    hidden.set_weights([np.full((5, 5), 0.25), np.ones(5)])
    return model


def test_training_starts_from_the_weights_that_the_function_sets():
    """Also those of a layer that is not trained; what is not set is drawn by the seed."""
    weights = []
    for function in (with_weights_of_its_own, with_weights_of_its_own):
        backbone = models.KerasBackbone(function)
        config = models.ModelConfig(backbone=backbone)
        values = config.backbone.initial_values(support.IMAGE)
        build = functools.partial(backbone.build, support.IMAGE, weights=values)
        spec = support.training_spec("fedavg")
        task = dataclasses.replace(spec.task, feature_dim=3, backbone=build)
        weights.append(states.initial_weights(dataclasses.replace(spec, task=task)))
    first, again = weights
    np.testing.assert_array_equal(first["trainable"][0], np.full((16, 5), 7.0))
    np.testing.assert_array_equal(first["statistics"][0], np.full((5, 5), 0.25))
    np.testing.assert_array_equal(first["statistics"][1], np.ones(5))
    last = first["trainable"][2].numpy()
    assert last.shape == (5, 3) and np.unique(last).size == 15
    np.testing.assert_array_equal(last, again["trainable"][2])


def with_two_outputs(input_shape):
    inputs = tf.keras.Input(input_shape)
    h = tf.keras.layers.Flatten()(inputs)
    return tf.keras.Model(inputs, [h, h])


def ending_with(input_shape, layers):
    return tf.keras.Sequential([tf.keras.Input(input_shape), *layers])


def test_softmax_within_a_model_is_allowed():
    def attention(input_shape):
        inputs = tf.keras.Input(input_shape)
        flat = Flatten()(inputs)
        return tf.keras.Model(inputs, flat * Dense(6, "softmax")(flat))

    assert models.KerasBackbone(attention).build(SHAPE).output_shape == (None, 6)


_KEPT = []


def kept(input_shape):
    """The same layers in every call."""
    if not _KEPT:
        _KEPT.append(functional(input_shape))
    return _KEPT[0]


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (lambda shape: tf.keras.layers.Dense(3), "must return a tf.keras.Model"),
        (
            lambda shape: tf.keras.Sequential([tf.keras.Input(shape), tf.keras.layers.Dense(3)]),
            r"output must have shape \[batch, d\] .*\(None, 2, 3, 3\)",
        ),
        (lambda shape: ending_with(shape, [Conv2D(2, 1)]), "GlobalAveragePooling2D or Flatten"),
        (lambda shape: ending_with(shape, [Flatten(), Dense(3, "softmax")]), "applies softmax"),
        (lambda shape: ending_with(shape, [Flatten(), tf.keras.layers.Softmax()]), "softmax"),
        (
            lambda shape: ending_with(
                shape, [ending_with(shape, [Flatten(), Dense(2, "softmax")])]
            ),
            "applies softmax; leave out the classifier",
        ),
        (lambda shape: ending_with(shape, [Flatten(), Dense(3, dtype="float64")]), "is float64"),
        (
            lambda shape: ending_with(
                shape, [Flatten(), Dense(3, dtype="float64"), Activation("relu", dtype="float32")]
            ),
            "must compute in float32, but dense.*kernel:0 is float64",
        ),
        (
            lambda shape: ending_with(shape, [Flatten(), Dense(3, kernel_regularizer="l2")]),
            "kernel_regularizer of the layer 'dense.*' would have no effect: .*client_weight_decay",
        ),
        (
            lambda shape: ending_with(shape, [Flatten(), Dense(3, bias_constraint="non_neg")]),
            "bias_constraint of the layer 'dense.*' would have no effect",
        ),
        (
            lambda shape: ending_with(
                shape, [Flatten(), tf.keras.layers.ActivityRegularization(0.1), Dense(3)]
            ),
            "would have no effect",
        ),
        (
            lambda shape: ending_with(shape, [tf.keras.layers.Normalization(), Flatten()]),
            "must be floats, which can be averaged, but .*count.* is int64",
        ),
        (with_two_outputs, r"output must have shape \[batch, d\]"),
        (lambda shape: functional((4, 4, 1)), r"input must have shape \(None, 2, 3, 1\).* 4, 4, 1"),
    ],
)
@pytest.mark.parametrize("projection_dim", [0, 4])
def test_models_that_cannot_be_backbones(function, projection_dim, reason):
    with refuses("model", reason, "mine"):
        models.KerasBackbone(function, name="mine").build(SHAPE, projection_dim=projection_dim)


def test_every_model_needs_layers_of_its_own():
    backbone = models.KerasBackbone(kept)
    backbone.build(SHAPE)
    with pytest.raises(SettingError, match="new layers each time"):
        backbone.build(SHAPE)


def test_a_registered_name_is_taken():
    with pytest.raises(SettingError, match="name of a registered backbone"):
        models.KerasBackbone(functional, name="resnet18")
    with pytest.raises(SettingError, match="needs a function"):
        models.KerasBackbone(functional(SHAPE).get_config())
