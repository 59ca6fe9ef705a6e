"""Residual networks for small images.

Deep Residual Learning for Image Recognition; K. He, X. Zhang, S. Ren, J. Sun; CVPR 2016; in the
form that the FedGELA, FedMR and FedLoGe experiments use for 32×32 images: a 3×3 stem with stride 1
and no pooling, stages of 64, 128, 256, 512 channels, 1×1 projection shortcuts, convolutions without
bias, global average pooling, d = 512.

Padding is explicit, one pixel on every side, because "same" padding puts it to the right and the
bottom only where the stride is 2, which shifts the features against the reference networks.
"""

import tensorflow as tf

from tff_pcdd.layers import BatchNormalization
from tff_pcdd.models.registry import project, register
from tff_pcdd.options import OptionError


def _conv(filters: int, size: int, stride: int):
    he = tf.keras.initializers.VarianceScaling(2.0, "fan_out", "untruncated_normal")
    return tf.keras.layers.Conv2D(
        filters, size, strides=stride, use_bias=False, kernel_initializer=he
    )


def _conv3(x, filters: int, stride: int = 1):
    return _conv(filters, 3, stride)(tf.keras.layers.ZeroPadding2D(1)(x))


def basic_block(x: tf.Tensor, filters: int, stride: int) -> tf.Tensor:
    """Two 3×3 convolutions and a shortcut, which is projected where the shape changes.

    Args:
        x: Keras tensor [batch, height, width, channels].
        filters: channels of the output.
        stride: of the first convolution and the shortcut.

    Returns:
        Keras tensor [batch, ceil(height/stride), ceil(width/stride), filters].
    """
    relu = tf.keras.layers.ReLU
    h = relu()(BatchNormalization()(_conv3(x, filters, stride)))
    h = BatchNormalization()(_conv3(h, filters))
    if stride != 1 or x.shape[-1] != filters:
        x = BatchNormalization()(_conv(filters, 1, stride)(x))
    return relu()(tf.keras.layers.Add()([h, x]))


def _resnet(name, input_shape, projection_dim, blocks) -> tf.keras.Model:
    if len(input_shape) != 3 or min(input_shape[:2]) < 8:
        raise OptionError(
            f"--model={name}: needs images of at least 8×8 pixels, the data has {input_shape}"
        )
    inputs = tf.keras.Input(input_shape)
    h = tf.keras.layers.ReLU()(BatchNormalization()(_conv3(inputs, 64)))
    for stage, count in enumerate(blocks):
        for block in range(count):
            stride = 2 if stage > 0 and block == 0 else 1
            h = basic_block(h, 64 * 2**stage, stride)
    h = tf.keras.layers.GlobalAveragePooling2D()(h)
    return tf.keras.Model(inputs, project(h, projection_dim), name=name)


@register("resnet18")
def resnet18(input_shape: tuple[int, ...], projection_dim: int = 0) -> tf.keras.Model:
    """ResNet18, 11,168,832 trainable parameters with three input channels."""
    return _resnet("resnet18", input_shape, projection_dim, (2, 2, 2, 2))


@register("resnet34")
def resnet34(input_shape: tuple[int, ...], projection_dim: int = 0) -> tf.keras.Model:
    """ResNet34, 21,276,992 trainable parameters with three input channels."""
    return _resnet("resnet34", input_shape, projection_dim, (3, 4, 6, 3))
