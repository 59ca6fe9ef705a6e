"""Gradients of convolutions as products of matrices, against NumPy and TensorFlow's gradient."""

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
@pytest.mark.parametrize(
    "stride, padding, size",
    [
        (1, "SAME", (5, 6)),
        # Places of the kernel lie on nothing but padding.
        (1, "SAME", (1, 2)),
        (1, "VALID", (5, 6)),
        (2, "VALID", (5, 6)),
        (3, "VALID", (5, 6)),
    ],
)
def test_gradients_are_sums_over_positions(rows, columns, stride, padding, size):
    x, kernel = integers(2, *size, 3), integers(rows, columns, 3, 4)
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


def gradient_of_input_by_loops(kernel, upstream):
    """The gradient of the input of a convolution with padding, stride 1."""
    (rows, columns), (batch, height, width) = kernel.shape[:2], upstream.shape[:3]
    result = np.zeros((batch, height + rows - 1, width + columns - 1, kernel.shape[2]), np.float32)
    for row in range(rows):
        for column in range(columns):
            part = np.einsum("bhwo,io->bhwi", upstream, kernel[row, column])
            result[:, row : row + height, column : column + width] += part
    above, left = (rows - 1) // 2, (columns - 1) // 2
    return result[:, above : above + height, left : left + width]


@pytest.mark.parametrize("rows, columns", [(1, 1), (3, 3), (2, 3), (5, 4)])
@pytest.mark.parametrize("height, width", [(4, 4), (3, 5)])
def test_gradients_without_padding_are_sums_over_positions(rows, columns, height, width):
    x, kernel = integers(2, height, width, 3), integers(rows, columns, 3, 4)
    given = [tf.constant(values) for values in (x, kernel)]
    with tf.GradientTape() as tape:
        tape.watch(given)
        y = convolution_gradients.convolution(*given, padding="SAME", leaves_out_padding=True)
    np.testing.assert_array_equal(y, tf.nn.conv2d(x, kernel, 1, "SAME"))
    upstream = integers(*y.shape)
    for_x, for_kernel = tape.gradient(y, given, tf.constant(upstream))
    around = [((size - 1) // 2, size // 2) for size in (rows, columns)]
    padded = np.pad(x, [(0, 0), *around, (0, 0)])
    np.testing.assert_array_equal(for_x, gradient_of_input_by_loops(kernel, upstream))
    np.testing.assert_array_equal(for_kernel, gradient_by_loops(padded, upstream, rows, columns, 1))


def built(layer, shape, precision="bfloat16"):
    """The layer inside a backbone with its inputs; in a graph, where weights have no values."""
    backbone = models.KerasBackbone(
        lambda shape: tf.keras.Sequential(
            [tf.keras.Input(shape), layer(), tf.keras.layers.GlobalAveragePooling2D()]
        )
    )
    with tf.Graph().as_default():
        model = backbone.build(shape, precision=precision)
    return model.layers[-3 if precision == "bfloat16" else -2]


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


@pytest.mark.parametrize(
    "options, shape, expected",
    [
        ({}, (4, 4, 512), True),
        ({}, (2, 2, 512), True),
        ({}, (1, 4, 512), False),
        ({}, (5, 4, 512), False),
        ({}, (4, 4, 256), False),
        ({"kernel_size": 1}, (4, 4, 512), False),
        ({"strides": 2}, (8, 8, 512), False),
        ({"padding": "valid"}, (4, 4, 512), False),
        ({"dilation_rate": 2}, (4, 4, 512), False),
        ({"groups": 2}, (4, 4, 1024), False),
    ],
)
def test_in_float32_only_the_last_stage_of_large_resnets_is_changed(options, shape, expected):
    options = {"kernel_size": 3, "padding": "same", **options}
    assert changed(built(lambda: LAYER(512, **options), shape, "float32")) is expected


# In bfloat16 all convolutions of the last two stages, in float32 those that pad in the last one.
@pytest.mark.parametrize(
    "name, precision, number",
    [
        ("resnet8", "float32", 0),
        ("simple_cnn", "float32", 0),
        ("resnet18", "float32", 3),
        ("resnet18", "bfloat16", 10),
    ],
)
def test_how_many_convolutions_of_a_network_are_changed(name, precision, number):
    # In a graph, weights have no values.
    with tf.Graph().as_default():
        model = models.create(name).build((32, 32, 3), precision=precision)
    layers = [layer for layer in model.submodules if type(layer) is LAYER]
    assert sum(map(changed, layers)) == number


def test_nothing_is_changed_in_small_float32_layers_on_gpus_and_in_subclasses(monkeypatch):
    class Own(LAYER):
        pass

    assert not changed(built(lambda: LAYER(128, 3), (4, 4, 128), "float32"))
    assert not changed(built(lambda: Own(128, 3), (4, 4, 128)))
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind: [kind])
    assert not changed(built(lambda: LAYER(128, 3), (4, 4, 128)))
    large = built(lambda: LAYER(512, 3, padding="same"), (4, 4, 512), "float32")
    assert not changed(large)


def last_stages(input_shape):
    """A network like the last stages of a ResNet18."""
    h = inputs = tf.keras.Input(input_shape)
    for filters, stride in ((128, 1), (512, 2), (512, 1)):
        if stride == 2:
            h = tf.keras.layers.ZeroPadding2D(1)(h)
        padding = "same" if stride == 1 else "valid"
        h = LAYER(filters, 3, strides=stride, padding=padding, use_bias=False)(h)
        h = tf.keras.layers.ReLU()(models.normalize(h))
    return tf.keras.Model(inputs, tf.keras.layers.GlobalAveragePooling2D()(h))


@pytest.mark.parametrize(
    "precision, number, tolerance", [("bfloat16", 3, 0.02), ("float32", 1, 1e-4)]
)
def test_a_network_trains_with_it_and_is_saved_without_it(tmp_path, precision, number, tolerance):
    shape = (8, 8, 128)
    backbone = models.KerasBackbone(last_stages)
    model = backbone.build(shape, precision=precision)
    convolutions = [layer for layer in model.submodules if type(layer) is LAYER]
    assert sum(map(changed, convolutions)) == number
    x = tf.constant(GENERATOR.normal(size=(2, *shape)), tf.float32)
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
        assert distance < tolerance, distance
    again = backbone.build(shape, precision=precision)
    again.set_weights(model.get_weights())
    for name in ("model.keras", "model"):
        again.save(tmp_path / name)
        loaded = tf.keras.models.load_model(tmp_path / name)
        np.testing.assert_array_equal(loaded(x), again(x))
