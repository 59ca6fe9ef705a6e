"""Exported models answer batches of their own shape only, and empty ones with nothing."""

import numpy as np
import pytest
import tensorflow as tf

from tests.support import untrained
from tff_pcdd import data
from tff_pcdd.export import keras_file, lite, saved_model

pytestmark = pytest.mark.integration

CLASSES = 3
SPECS = {
    "images": data.InputSpec(
        "image", (8, 6, 3), scale=1 / 255, mean=(0.5, 0.4, 0.3), std=(0.2, 0.3, 0.4)
    ),
    "features": data.InputSpec(
        "vector", (4,), "float32", mean=(1.0, 2.0, 3.0, 4.0), std=(1.0, 2.0, 3.0, 4.0)
    ),
}
WRONG = {
    "images": [(8, 6, 3), (2, 8, 6), (2, 8, 6, 1), (2, 1, 1, 3), (2, 3, 8, 6), (2, 8, 6, 4), ()],
    "features": [(4,), (2, 1), (2, 5), (2, 4, 1), (1, 1), ()],
}


def backbone(shape):
    inputs = tf.keras.Input(shape)
    return tf.keras.Model(inputs, tf.keras.layers.Dense(5)(tf.keras.layers.Flatten()(inputs)))


@pytest.fixture(scope="module", params=list(SPECS))
def written(request, tmp_path_factory):
    """The name of the input, and the directory of an untrained model in all formats."""
    spec, directory = SPECS[request.param], tmp_path_factory.mktemp(request.param)
    x = np.random.default_rng(0).integers(0, 9, (6, *spec.shape)).astype(spec.dtype)
    examples = data.Examples(x, np.arange(6, dtype=np.int32) % CLASSES)
    clients = [data.ClientIndices(name, np.arange(6), np.arange(6)) for name in "ab"]
    federation = data.Federation("own", CLASSES, "xyz", spec, examples, examples, clients)
    model = untrained(federation, backbone)
    saved_model.write(model, directory / "saved")
    keras_file.write(model, directory)
    lite.write(model, directory, examples.x)
    return request.param, directory


def of(spec, shape, value=1):
    return np.full(shape, value, spec.dtype)


@pytest.mark.parametrize("number", range(7))
def test_other_shapes_are_refused(number, written):
    name, directory = written
    if number >= len(WRONG[name]):
        pytest.skip("no further shape")
    spec, shape = SPECS[name], WRONG[name][number]
    wrong = of(spec, shape)
    signature = tf.saved_model.load(str(directory / "saved")).signatures["serving_default"]
    with pytest.raises(tf.errors.InvalidArgumentError) as caught:
        signature(tf.constant(wrong))
    expected = ",".join(["?", *map(str, spec.shape)])
    assert f"expected shape [{expected}]" in caught.value.message
    model = tf.keras.models.load_model(directory / keras_file.FILE)
    if shape == (2, 4, 1):
        return  # Keras and TensorFlow Lite leave out a last axis of 1, which changes no number.
    with pytest.raises((tf.errors.InvalidArgumentError, ValueError)):
        model(tf.constant(wrong))
    for file in (lite.FLOAT, lite.INT8):
        interpreter = tf.lite.Interpreter(str(directory / file))
        run = interpreter.get_signature_runner()
        with pytest.raises((RuntimeError, ValueError)):
            run(**{name: wrong[:1] if shape else wrong})


def test_the_right_shape_and_an_empty_batch(written):
    name, directory = written
    spec = SPECS[name]
    signature = tf.saved_model.load(str(directory / "saved")).signatures["serving_default"]
    model = tf.keras.models.load_model(directory / keras_file.FILE)
    for size in (0, 1, 5):
        batch = tf.constant(of(spec, (size, *spec.shape)))
        for answers in (signature(batch), model(batch)):
            assert answers["probabilities"].shape == (size, CLASSES)
            assert answers["class_id"].shape == (size,)
    run = tf.lite.Interpreter(str(directory / lite.FLOAT)).get_signature_runner()
    answers = run(**{name: of(spec, (1, *spec.shape))})
    np.testing.assert_allclose(
        answers["probabilities"], signature(batch)["probabilities"][:1], atol=1e-5
    )


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_numbers_that_are_not_finite_are_refused(value, written):
    name, directory = written
    if name == "images":
        pytest.skip("pixels are whole numbers")
    batch = of(SPECS[name], (2, 4))
    batch[1, 2] = value
    signature = tf.saved_model.load(str(directory / "saved")).signatures["serving_default"]
    model = tf.keras.models.load_model(directory / keras_file.FILE)
    for answer in (signature, model):
        with pytest.raises(tf.errors.InvalidArgumentError, match="features: a value is NaN or inf"):
            answer(tf.constant(batch))
