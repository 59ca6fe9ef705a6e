"""Residual networks for small images.

Deep Residual Learning for Image Recognition; K. He, X. Zhang, S. Ren, J. Sun; CVPR 2016; in the
form that the FedGELA, FedMR and FedLoGe experiments use for 32×32 images: a 3×3 stem with stride 1
and no pooling, stages of 64, 128, 256, 512 channels, 1×1 projection shortcuts, convolutions without
bias, global average pooling, d = 512. ResNet50's stages end four times as wide, d = 2048; the
stride is that of its blocks' 3×3 convolution. ResNet8 is the smallest of the paper's networks for
CIFAR, narrow enough for studies on a processor: one block in each of three stages of 16, 32, 64
channels, d = 64; its shortcuts are projected where the paper pads with zeros.

Padding is explicit, one pixel on every side, because "same" padding puts it to the right and the
bottom only where the stride is 2, which shifts the features against the reference networks.
"""

import tensorflow as tf

from tff_pcdd.models.registry import normalize, project, register
from tff_pcdd.options import OptionError

_EXPANSION = 4


def _conv(filters: int, size: int, stride: int):
    he = tf.keras.initializers.VarianceScaling(2.0, "fan_out", "untruncated_normal")
    return tf.keras.layers.Conv2D(
        filters, size, strides=stride, use_bias=False, kernel_initializer=he
    )


def _conv3(x, filters: int, stride: int = 1):
    return _conv(filters, 3, stride)(tf.keras.layers.ZeroPadding2D(1)(x))


def _relu(x):
    return tf.keras.layers.ReLU()(x)


def _shortcut(x, filters: int, stride: int, norm: str):
    if stride == 1 and x.shape[-1] == filters:
        return x
    return normalize(_conv(filters, 1, stride)(x), norm)


def basic_block(x: tf.Tensor, filters: int, stride: int, norm: str = "batch") -> tf.Tensor:
    """Two 3×3 convolutions and a shortcut, which is projected where the shape changes.

    Args:
        x: Keras tensor [batch, height, width, channels].
        filters: channels of the output.
        stride: of the first convolution and the shortcut.
        norm: "batch" or "group".

    Returns:
        Keras tensor [batch, ceil(height/stride), ceil(width/stride), filters].
    """
    h = _relu(normalize(_conv3(x, filters, stride), norm))
    h = normalize(_conv3(h, filters), norm)
    return _relu(tf.keras.layers.Add()([h, _shortcut(x, filters, stride, norm)]))


def bottleneck_block(x: tf.Tensor, filters: int, stride: int, norm: str = "batch") -> tf.Tensor:
    """Convolutions 1×1, 3×3, 1×1 and a shortcut, which is projected where the shape changes.

    Args:
        x: Keras tensor [batch, height, width, channels].
        filters: channels inside; the output has four times as many.
        stride: of the 3×3 convolution and the shortcut.
        norm: "batch" or "group".

    Returns:
        Keras tensor [batch, ceil(height/stride), ceil(width/stride), 4 · filters].
    """
    h = _relu(normalize(_conv(filters, 1, 1)(x), norm))
    h = _relu(normalize(_conv3(h, filters, stride), norm))
    h = normalize(_conv(_EXPANSION * filters, 1, 1)(h), norm)
    return _relu(tf.keras.layers.Add()([h, _shortcut(x, _EXPANSION * filters, stride, norm)]))


def _resnet(name, input_shape, projection_dim, norm, block, counts, width=64) -> tf.keras.Model:
    if min(input_shape[:2]) < 8:
        raise OptionError(
            f"--model={name}: needs images of at least 8×8 pixels, the data has {input_shape}"
        )
    inputs = tf.keras.Input(input_shape)
    h = _relu(normalize(_conv3(inputs, width), norm))
    for stage, count in enumerate(counts):
        for number in range(count):
            h = block(h, width * 2**stage, 2 if stage > 0 and number == 0 else 1, norm)
    h = tf.keras.layers.GlobalAveragePooling2D()(h)
    return tf.keras.Model(inputs, project(h, projection_dim), name=name)


@register("resnet8")
def resnet8(
    input_shape: tuple[int, ...], projection_dim: int = 0, norm: str = "batch"
) -> tf.keras.Model:
    """ResNet8, 77,392 trainable parameters with three input channels."""
    return _resnet("resnet8", input_shape, projection_dim, norm, basic_block, (1, 1, 1), width=16)


@register("resnet18")
def resnet18(
    input_shape: tuple[int, ...], projection_dim: int = 0, norm: str = "batch"
) -> tf.keras.Model:
    """ResNet18, 11,168,832 trainable parameters with three input channels."""
    return _resnet("resnet18", input_shape, projection_dim, norm, basic_block, (2, 2, 2, 2))


@register("resnet34")
def resnet34(
    input_shape: tuple[int, ...], projection_dim: int = 0, norm: str = "batch"
) -> tf.keras.Model:
    """ResNet34, 21,276,992 trainable parameters with three input channels."""
    return _resnet("resnet34", input_shape, projection_dim, norm, basic_block, (3, 4, 6, 3))


@register("resnet50")
def resnet50(
    input_shape: tuple[int, ...], projection_dim: int = 0, norm: str = "batch"
) -> tf.keras.Model:
    """ResNet50, 23,500,352 trainable parameters with three input channels."""
    return _resnet("resnet50", input_shape, projection_dim, norm, bottleneck_block, (3, 4, 6, 3))
