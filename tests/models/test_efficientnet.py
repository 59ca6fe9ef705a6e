"""EfficientNet-B0 of Keras without its input layers, with draws that follow from a seed."""

import math
import os

import h5py
import numpy as np
import pytest
import tensorflow as tf

from tests.data.refusals import refuses
from tff_pcdd import layers, models
from tff_pcdd.errors import SettingError
from tff_pcdd.federated import initialization

pytestmark = pytest.mark.integration

SHAPE = (32, 32, 3)
X = np.random.default_rng(0).normal(size=(4, *SHAPE)).astype(np.float32)


@pytest.fixture(scope="module")
def original():
    """Keras' network, its weights anything but the first ones."""
    tf.keras.utils.set_random_seed(0)
    network = tf.keras.applications.EfficientNetB0(
        include_top=False, weights=None, input_shape=SHAPE, pooling="avg"
    )
    generator = np.random.default_rng(0)
    for layer in network.layers:
        if isinstance(layer, tf.keras.layers.BatchNormalization):
            layer.set_weights([generator.uniform(0.5, 1.5, w.shape) for w in layer.get_weights()])
    return network


@pytest.fixture(scope="module")
def path(original, tmp_path_factory):
    path = str(tmp_path_factory.mktemp("weights") / "notop.h5")
    original.save_weights(path)
    return path


@pytest.fixture(scope="module")
def weights(path):
    return models.create("efficientnet_b0", pretrained_weights=path).initial_values(SHAPE)


@pytest.fixture(scope="module")
def model(weights):
    return models.create("efficientnet_b0").build(SHAPE, weights=weights)


def test_it_is_keras_network_behind_the_input_layers(original, model):
    assert model.output_shape == (None, 1280)
    assert sum(math.prod(w.shape) for w in model.trainable_weights) == 4_007_548
    # Keras counts 7 more: its input layers' mean, variance and counter.
    assert model.count_params() == original.count_params() - 7
    # Keras' input layers divide by 255 and, with their first values, do nothing more.
    np.testing.assert_allclose(model(X), original(255 * X), rtol=1e-3, atol=1e-4)


def test_a_training_step(model):
    """Blocks are dropped by the seed, weights get gradients and averages move."""
    averages = [v for v in model.non_trainable_weights if "moving_mean" in v.name]
    before = [v.numpy() for v in averages]

    @tf.function
    def run(seed):
        with tf.GradientTape() as tape, layers.dropout_seed(seed):
            features = model(X, training=True)
            loss = tf.reduce_mean(tf.square(features))
        return features, tape.gradient(loss, model.trainable_weights)

    features, gradients = run(tf.constant([1, 2]))
    assert all(gradient is not None for gradient in gradients)
    assert all(np.any(v.numpy() != b) for v, b in zip(averages, before, strict=True))
    np.testing.assert_array_equal(run(tf.constant([1, 2]))[0], features)
    assert np.any(run(tf.constant([1, 3]))[0] != features)


def test_weights_from_a_file_are_first_values_in_graphs(weights, original):
    """As in those that TFF traces; a projection behind them has values of its own."""
    with tf.Graph().as_default(), initialization.deferred() as first:
        made = models.create("efficientnet_b0").build(SHAPE, projection_dim=7, weights=weights)

        @tf.function
        def values():
            first.assign({"backbone": made}, 0)
            return {weight.name: tf.identity(weight) for weight in made.weights}

        with tf.compat.v1.Session() as session:
            actual = session.run(values())
    kernel = actual.pop("projection/kernel:0")
    assert kernel.shape == (1280, 7) and np.unique(kernel).size > 1000
    assert not actual.pop("projection/bias:0").any()
    assert len(actual) == len(weights)
    for layer in original.layers:
        if isinstance(layer, tf.keras.layers.Normalization):
            continue
        for weight in layer.weights:
            np.testing.assert_array_equal(actual[weight.name], weight)


def test_files_that_do_not_fit(tmp_path, model, monkeypatch):
    # Making one takes seconds.
    monkeypatch.setattr(models.get("efficientnet_b0"), "build", lambda *_: model)
    small = tf.keras.Sequential([tf.keras.layers.Dense(2)])
    small.build((None, 3))
    small.save_weights(str(tmp_path / "small.h5"))
    (tmp_path / "text.h5").write_text("not a file of weights")
    for name in ("small.h5", "text.h5", "missing.h5"):
        path = str(tmp_path / name)
        backbone = models.create("efficientnet_b0", pretrained_weights=path)
        with refuses("pretrained_weights", "not a readable file of weights", path):
            backbone.initial_values(SHAPE)


@pytest.mark.parametrize("kind", ["link", "elsewhere", "huge", "text"])
def test_weights_that_are_no_numbers_are_refused_before_a_network_is_made(tmp_path, kind):
    path = tmp_path / "weights.h5"
    with h5py.File(path, "w") as file:
        if kind == "link":
            file["stem/kernel:0"] = h5py.ExternalLink("/etc/passwd", "/")
        elif kind == "elsewhere":
            file.create_dataset("k", (9,), "u1", external=[("/etc/passwd", 0, h5py.h5f.UNLIMITED)])
        elif kind == "huge":
            file.create_dataset("kernel:0", (2**20, 2**20), "f4", chunks=(1, 1024))
        else:
            file["kernel:0"] = [b"text"]
    backbone = models.create("efficientnet_b0", pretrained_weights=str(path))
    with pytest.raises(SettingError, match=r"is a link|is no array of numbers|has the shape"):
        backbone.initial_values(SHAPE)


def test_a_missing_file_is_refused_before_a_network_is_made(tmp_path, monkeypatch):
    """A checkpoint of TensorFlow is there if its index is."""

    class Made(Exception):
        pass

    def build(*_, **__):
        raise Made

    monkeypatch.setattr(models.get("efficientnet_b0"), "build", build)
    backbone = models.create("efficientnet_b0", pretrained_weights=str(tmp_path / "weights"))
    with pytest.raises(SettingError, match=r"not a readable file of weights .* No such file"):
        backbone.initial_values(SHAPE)
    os.mkfifo(tmp_path / "weights")
    with pytest.raises(SettingError, match=r"not a readable file of weights .* regular file"):
        backbone.initial_values(SHAPE)
    (tmp_path / "weights.index").touch()
    with pytest.raises(Made):
        backbone.initial_values(SHAPE)


def test_without_pretrained_weights_there_are_no_initial_values():
    assert models.create("efficientnet_b0").initial_values(SHAPE) is None
    assert models.create("resnet18").initial_values(SHAPE) is None


# In networks of their own, which are smaller, in test_models.
@pytest.mark.rare
def test_group_normalization_in_it():
    with tf.Graph().as_default():
        model = models.create("efficientnet_b0", normalization="group").build(SHAPE)
    assert not model.non_trainable_weights
    assert sum(math.prod(w.shape) for w in model.trainable_weights) == 4_007_548
