"""Backbones: sizes, shapes, projections, and the residual block against golden numbers."""

import math
import re

import numpy as np
import pytest
import tensorflow as tf

from tests.models.test_backbones import build, count
from tff_pcdd import models
from tff_pcdd.models import resnet


def trainable(model) -> int:
    return count(model.trainable_weights)


@pytest.mark.parametrize(
    ("name", "size", "width", "depth"),
    [
        # With its head of ten, the 11,173,962 that are published.
        ("resnet18", 11_173_962 - (512 + 1) * 10, 512, 1 + 2 * 8 + 3),
        # torchvision's sizes, with heads for 1000 classes.
        ("resnet18_imagenet", 11_689_512 - (512 + 1) * 1000, 512, 1 + 2 * 8 + 3),
        ("resnet34", 21_276_992, 512, 1 + 2 * 16 + 3),
        # With a 3×3 stem for torchvision's 7×7.
        (
            "resnet50",
            25_557_032 - (2048 + 1) * 1000 - (7 * 7 - 3 * 3) * 3 * 64,
            2048,
            1 + 3 * 16 + 4,
        ),
    ],
)
def test_resnet_sizes(name, size, width, depth):
    model = build(name, (32, 32, 3))
    assert trainable(model) == size
    assert model.output_shape == (None, width)
    convolutions = [layer for layer in model.layers if isinstance(layer, tf.keras.layers.Conv2D)]
    assert len(convolutions) == depth
    statistics = 2 * sum(layer.filters for layer in convolutions)
    assert count(model.non_trainable_weights) == statistics


def test_resnet8_is_three_narrow_blocks():
    """Convolutions without bias, and two parameters of normalization for each channel."""
    model = build("resnet8", (32, 32, 3))
    stem = 9 * 3 * 16 + 2 * 16
    first = 9 * 16 * 16 + 9 * 16 * 16 + 2 * (16 + 16)
    second = 9 * 16 * 32 + 9 * 32 * 32 + 16 * 32 + 2 * (32 + 32 + 32)
    third = 9 * 32 * 64 + 9 * 64 * 64 + 32 * 64 + 2 * (64 + 64 + 64)
    assert trainable(model) == stem + first + second + third == 77_392
    assert model.output_shape == (None, 64)
    assert model.layers[-1].input.shape == (None, 8, 8, 64)
    assert build("resnet8", (8, 8, 1)).layers[-1].input.shape == (None, 2, 2, 64)


def test_resnet_takes_other_channels_and_sides():
    gray = build("resnet18", (28, 28, 1))
    assert trainable(gray) == 11_168_832 - 9 * 2 * 64
    assert gray.output_shape == (None, 512)
    assert build("resnet18", (64, 64, 3)).output_shape == (None, 512)


@pytest.mark.parametrize(
    ("shape", "flat"),
    [
        ((8, 8, 1), 4 * 4 * 16),
        ((28, 28, 1), 4 * 4 * 16),
        ((32, 32, 3), 5 * 5 * 16),
        ((16, 16, 3), 1 * 1 * 16),
        ((15, 15, 1), 7 * 7 * 16),
        ((4, 4, 1), 2 * 2 * 16),
        ((28, 32, 1), 4 * 5 * 16),
    ],
)
def test_simple_cnn_shapes(shape, flat):
    model = build("simple_cnn", shape)
    assert model.output_shape == (None, 84)
    expected = 25 * shape[-1] * 6 + 6 + 25 * 6 * 16 + 16 + (flat + 1) * 120 + 121 * 84
    assert trainable(model) == expected


def test_simple_cnn_is_the_network_it_says():
    """Against NumPy: valid convolutions, ReLU, pooling of 2, two dense layers with ReLU."""
    tf.keras.utils.set_random_seed(0)
    model = models.create("simple_cnn").build((16, 16, 2))
    x = np.random.default_rng(0).normal(size=(3, 16, 16, 2)).astype(np.float32)
    values = [weight.numpy().astype(np.float64) for weight in model.weights]
    h = x.astype(np.float64)
    for kernel, bias in (values[:2], values[2:4]):
        windows = np.lib.stride_tricks.sliding_window_view(h, (5, 5), axis=(1, 2))
        h = np.maximum(np.einsum("nhwcij,ijco->nhwo", windows, kernel) + bias, 0)
        n, side, _, channels = h.shape
        h = h.reshape(n, side // 2, 2, side // 2, 2, channels).max(axis=(2, 4))
    h = h.reshape(3, -1)
    for kernel, bias in (values[4:6], values[6:8]):
        h = np.maximum(h @ kernel + bias, 0)
    np.testing.assert_allclose(model(x).numpy(), h, rtol=1e-4, atol=1e-6)


def windows(x, size, stride):
    """Patches of an image batch: [batch, height, width, channels, size, size]."""
    found = np.lib.stride_tricks.sliding_window_view(x, (size, size), axis=(1, 2))
    return found[:, ::stride, ::stride]


def filled(model, seed=0):
    """The layers of a model in the order in which they were made, with other statistics and scales.

    Statistics of normalization layers start at 0 and 1, which would hide what they do.
    """
    generator = np.random.default_rng(seed)
    for layer in model.layers:
        if isinstance(layer, tf.keras.layers.BatchNormalization):
            shape = layer.gamma.shape
            layer.set_weights([generator.uniform(0.5, 1.5, shape) for _ in range(4)])
    kinds = (tf.keras.layers.Conv2D, tf.keras.layers.Dense, tf.keras.layers.BatchNormalization)

    def number(layer):
        return int((re.findall(r"_(\d+)$", layer.name) or ["0"])[0])

    return [
        iter(sorted((each for each in model.layers if isinstance(each, kind)), key=number))
        for kind in kinds
    ]


def normalized(h, layer):
    gamma, beta, mean, variance = (w.astype(np.float64) for w in layer.get_weights())
    return gamma * (h - mean) / np.sqrt(variance + 1e-5) + beta


def test_simple_cnn_with_normalization_is_the_network_it_says():
    model = models.create("simple_cnn_bn").build((16, 16, 2))
    convolutions, dense, norms = filled(model)
    x = h = np.random.default_rng(1).normal(size=(3, 16, 16, 2))
    for layer in convolutions:
        (kernel,) = layer.get_weights()
        h = np.einsum("nhwcij,ijco->nhwo", windows(h, 5, 1), kernel.astype(np.float64))
        h = np.maximum(normalized(h, next(norms)), 0)
        h = windows(h, 2, 2).max(axis=(-2, -1))
    h = h.reshape(3, -1)
    for layer in dense:
        (kernel,) = layer.get_weights()
        h = np.maximum(normalized(h @ kernel.astype(np.float64), next(norms)), 0)
    assert h.shape == (3, 84)
    np.testing.assert_allclose(model(x.astype(np.float32)).numpy(), h, rtol=1e-4, atol=1e-5)


def test_resnet18_for_imagenet_is_the_network_it_says():
    """Against NumPy: what torchvision's `resnet18` computes before its head, on one image."""
    model = models.create("resnet18_imagenet").build((32, 32, 3))
    convolutions, _, norms = filled(model)
    x = h = np.random.default_rng(1).normal(size=(1, 32, 32, 3))

    def convolved(h, stride=1):
        (kernel,) = next(convolutions).get_weights()
        size = len(kernel)
        border = size // 2
        padded = np.pad(h, [(0, 0), (border, border), (border, border), (0, 0)])
        found = np.tensordot(windows(padded, size, stride), kernel, ((3, 4, 5), (2, 0, 1)))
        return normalized(found.astype(np.float64), next(norms))

    h = np.maximum(convolved(h, 2), 0)
    h = windows(np.pad(h, [(0, 0), (1, 1), (1, 1), (0, 0)]), 3, 2).max(axis=(-2, -1))
    for width in (64, 128, 256, 512):
        for block in range(2):
            stride = 2 if width > 64 and block == 0 else 1
            inner = convolved(np.maximum(convolved(h, stride), 0))
            h = np.maximum(inner + (convolved(h, stride) if stride == 2 else h), 0)
    h = h.mean(axis=(1, 2))
    assert h.shape == (1, 512)
    np.testing.assert_allclose(model(x.astype(np.float32)).numpy(), h, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("name", ["simple_cnn", "resnet18"])
def test_projection_is_linear_and_last(name):
    """In Simple-CNN it takes the place of the layer of 84, behind ResNet it is added."""
    plain, projected = build(name), build(name, projection_dim=7)
    assert projected.output_shape == (None, 7)
    last = projected.layers[-1]
    assert last.name == "projection"
    assert last.activation is tf.keras.activations.linear
    layers_before = 1 if name == "simple_cnn" else 0
    assert len(projected.layers) == len(plain.layers) + 1 - layers_before
    width = {"simple_cnn": 120, "resnet18": 512}[name]
    assert trainable(last) == (width + 1) * 7


def test_dense_layers_start_within_one_over_the_root_of_the_width():
    layer = models.dense(50)
    layer.build((None, 64))
    kernel = layer.kernel.numpy()
    assert np.abs(kernel).max() <= 1 / 8
    assert np.abs(kernel).max() > 0.95 / 8
    assert kernel.std() == pytest.approx(1 / 8 / math.sqrt(3), rel=0.05)


def test_fresh_variables_each_time():
    tf.keras.utils.set_random_seed(0)
    first, second = (models.create("simple_cnn").build((8, 8, 1)) for _ in range(2))
    assert not {id(v) for v in first.weights} & {id(v) for v in second.weights}


@pytest.fixture
def block(golden):
    """The residual block of the golden file, its layers by the file's names, and the file."""
    case = golden("resnet_block_stride2")
    inputs = tf.keras.Input((6, 6, 2))
    model = tf.keras.Model(inputs, resnet.basic_block(inputs, 3, 2))
    convolutions = {
        layer.kernel.shape: layer
        for layer in model.layers
        if isinstance(layer, tf.keras.layers.Conv2D)
    }
    names = {"conv1": "bn1", "conv2": "bn2", "downsample_0": "downsample_1"}
    parts = {}
    for convolution, normalization in names.items():
        kernel = case[f"{convolution}_weight"].transpose(2, 3, 1, 0)
        layer = convolutions[kernel.shape]
        layer.set_weights([kernel])
        parts[normalization] = layer.outbound_nodes[0].outbound_layer
        statistics = ("weight", "bias", "running_mean", "running_var")
        parts[normalization].set_weights([case[f"{normalization}_{s}"] for s in statistics])
    return model, parts, case


def test_residual_block_matches_golden(block):
    """Train mode, running statistics after one update, eval mode with them."""
    model, normalizations, case = block
    x = case["x_nchw"].transpose(0, 2, 3, 1).astype(np.float32)
    actual = model(x, training=True).numpy()
    np.testing.assert_allclose(
        actual, case["y_train_nchw"].transpose(0, 2, 3, 1), rtol=1e-5, atol=1e-6
    )
    for name, layer in normalizations.items():
        mean, variance = (case[f"{name}_running_{s}_after1"] for s in ("mean", "var"))
        np.testing.assert_allclose(layer.moving_mean.numpy(), mean, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(layer.moving_variance.numpy(), variance, rtol=1e-5)
    actual = model(x, training=False).numpy()
    np.testing.assert_allclose(
        actual, case["y_eval_after1_nchw"].transpose(0, 2, 3, 1), rtol=1e-5, atol=1e-6
    )


def test_residual_block_keeps_its_input_where_the_shape_stays():
    with tf.Graph().as_default():
        inputs = tf.keras.Input((6, 6, 3))
        model = tf.keras.Model(inputs, resnet.basic_block(inputs, 3, 1))
    convolutions = [layer for layer in model.layers if isinstance(layer, tf.keras.layers.Conv2D)]
    assert len(convolutions) == 2
    assert not any(layer.use_bias for layer in convolutions)
    assert model.output_shape == (None, 6, 6, 3)
