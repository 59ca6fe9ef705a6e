"""The gradient of convolutions in bfloat16, against sums in NumPy and TensorFlow's own gradient."""

import numpy as np
import pytest
import tensorflow as tf

from tff_pcdd import models
from tff_pcdd.models import convolution_gradients

# Small integers: their products and sums are exact in bfloat16's float32 accumulators.
GENERATOR = np.random.default_rng(0)
LAYER = tf.keras.layers.Conv2D


def integers(*shape):
    return GENERATOR.integers(-1, 2, shape).astype(np.float32)


def gradient_by_loops(x, upstream, rows, columns, stride):
    """The gradient of the kernel of a convolution of padded images."""
    height, width = (stride * (size - 1) + 1 for size in upstream.shape[1:3])
    result = np.zeros((rows, columns, x.shape[-1], upstream.shape[-1]), np.float32)
    for row in range(rows):
        for column in range(columns):
            window = x[:, row : row + height : stride, column : column + width : stride]
            result[row, column] = np.einsum("bhwi,bhwo->io", window, upstream)
    return result


@pytest.mark.parametrize("rows, columns", [(1, 1), (3, 3), (2, 3), (5, 4)])
@pytest.mark.parametrize("stride, padding", [(1, "SAME"), (1, "VALID"), (2, "VALID"), (3, "VALID")])
def test_gradients_are_sums_over_positions(rows, columns, stride, padding):
    x, kernel = integers(2, 5, 6, 3), integers(rows, columns, 3, 4)
    given = [tf.constant(values, tf.bfloat16) for values in (x, kernel)]
    with tf.GradientTape() as tape:
        tape.watch(given)
        y = convolution_gradients.convolution(*given, stride=stride, padding=padding)
    expected = tf.nn.conv2d(x, kernel, stride, padding)
    np.testing.assert_array_equal(tf.cast(y, tf.float32), expected)
    upstream = integers(*expected.shape)
    for_x, for_kernel = tape.gradient(y, given, tf.constant(upstream, tf.bfloat16))
    before, after = (((size - 1) // 2, size // 2) for size in (rows, columns))
    padded = np.pad(x, [(0, 0), before, after, (0, 0)]) if padding == "SAME" else x
    wanted = gradient_by_loops(padded, upstream, rows, columns, stride)
    np.testing.assert_array_equal(tf.cast(for_kernel, tf.float32), wanted)
    with tf.GradientTape() as tape:
        tape.watch(given[0])
        plain = tf.nn.conv2d(*given, stride, padding)
    wanted = tape.gradient(plain, given[0], tf.constant(upstream, tf.bfloat16))
    np.testing.assert_array_equal(tf.cast(for_x, tf.float32), tf.cast(wanted, tf.float32))


def built(layer, shape, precision="bfloat16"):
    """The layer inside a backbone in bfloat16, with its inputs."""
    backbone = models.KerasBackbone(
        lambda shape: tf.keras.Sequential(
            [tf.keras.Input(shape), layer(), tf.keras.layers.GlobalAveragePooling2D()]
        )
    )
    return backbone.build(shape, precision=precision).layers[-3 if precision == "bfloat16" else -2]


def changed(layer):
    return "convolution_op" in vars(layer)


@pytest.mark.parametrize(
    "options, shape, expected",
    [
        ({}, (8, 8, 128), True),
        ({}, (9, 9, 128), False),
        ({}, (8, 8, 64), False),
        ({"strides": 2, "padding": "valid"}, (17, 17, 128), True),
        ({"strides": 2}, (8, 8, 128), False),
        ({"strides": 3, "padding": "valid"}, (9, 9, 128), False),
        ({"dilation_rate": 2}, (8, 8, 128), False),
        ({"groups": 2}, (8, 8, 256), False),
        ({"dtype": "float32"}, (8, 8, 128), False),
    ],
)
def test_only_small_images_with_many_channels_are_changed(options, shape, expected):
    options = {"padding": "same", **options}
    assert changed(built(lambda: LAYER(128, 3, **options), shape)) is expected


def test_nothing_is_changed_in_float32_on_gpus_and_in_subclasses(monkeypatch):
    class Own(LAYER):
        pass

    assert not changed(built(lambda: LAYER(128, 3), (4, 4, 128), "float32"))
    assert not changed(built(lambda: Own(128, 3), (4, 4, 128)))
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind: [kind])
    assert not changed(built(lambda: LAYER(128, 3), (4, 4, 128)))


def test_a_network_trains_with_it_and_is_saved_without_it(tmp_path):
    backbone = models.create("resnet18")
    model = backbone.build((32, 32, 3), precision="bfloat16")
    convolutions = [layer for layer in model.layers if type(layer) is LAYER]
    # All of the last two stages, whose images are 8×8 and 4×4.
    assert sum(map(changed, convolutions)) == 10
    x = tf.constant(GENERATOR.normal(size=(2, 32, 32, 3)), tf.float32)
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(model(x, training=True) ** 2)
    gradients = tape.gradient(loss, model.trainable_variables)
    for layer in convolutions:
        vars(layer).pop("convolution_op", None)
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(model(x, training=True) ** 2)
    for actual, wanted in zip(
        gradients, tape.gradient(loss, model.trainable_variables), strict=True
    ):
        assert actual.dtype == tf.float32
        distance = tf.norm(actual - wanted) / tf.norm(wanted)
        assert distance < 0.02, distance
    again = backbone.build((32, 32, 3), precision="bfloat16")
    again.set_weights(model.get_weights())
    for name in ("model.keras", "model"):
        again.save(tmp_path / name)
        loaded = tf.keras.models.load_model(tmp_path / name)
        np.testing.assert_array_equal(loaded(x), again(x))
