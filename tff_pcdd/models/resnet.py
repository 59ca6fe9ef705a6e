"""Residual networks for small images.

Deep Residual Learning for Image Recognition; K. He, X. Zhang, S. Ren, J. Sun; CVPR 2016; in the
form that the FedGELA, FedMR and FedLoGe experiments use for 32×32 images: a 3×3 stem with stride 1
and no pooling, stages of 64, 128, 256, 512 channels, 1×1 projection shortcuts, convolutions without
bias, global average pooling, d = 512. The stages of ResNet50 end four times as wide, d = 2048; its
blocks have their stride in the 3×3 convolution. `resnet18_imagenet` has the stem for ImageNet.
ResNet8 is the smallest of the paper's networks for CIFAR and cheap enough for studies on a CPU: one
block in each of three stages of 16, 32, 64 channels, d = 64; its shortcuts are projected, whereas
the paper pads with zeros.

Padding is one pixel on every side. It is explicit with stride 2: "same" padding would pad on the
right and at the bottom only, which would shift the features relative to the reference networks.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import ClassVar

from etils import epy

from tff_pcdd.models.backbone import ImageBackbone, NormalizationOption, registry
from tff_pcdd.models.building import average, normalize, project

with epy.lazy_imports():
    import tensorflow as tf

_EXPANSION = 4


def _conv(filters: int, size: int, stride: int, padding: str = "valid") -> tf.keras.layers.Conv2D:
    he = tf.keras.initializers.VarianceScaling(2.0, "fan_out", "untruncated_normal")
    return tf.keras.layers.Conv2D(
        filters, size, strides=stride, padding=padding, use_bias=False, kernel_initializer=he
    )


def _conv3(x: tf.Tensor, filters: int, stride: int = 1) -> tf.Tensor:
    if stride == 1:
        # The same padding, without a gradient of the border that would be thrown away.
        return _conv(filters, 3, stride, "same")(x)
    return _conv(filters, 3, stride)(tf.keras.layers.ZeroPadding2D(1)(x))


def _relu(x: tf.Tensor) -> tf.Tensor:
    return tf.keras.layers.ReLU()(x)


def _shortcut(x: tf.Tensor, filters: int, stride: int, normalization: str) -> tf.Tensor:
    if stride == 1 and x.shape[-1] == filters:
        return x
    return normalize(_conv(filters, 1, stride)(x), normalization)


def basic_block(x: tf.Tensor, filters: int, stride: int, normalization: str = "batch") -> tf.Tensor:
    """Two 3×3 convolutions and a shortcut, which is projected where the shape changes.

    The stride is that of the first convolution and the shortcut.
    """
    h = _relu(normalize(_conv3(x, filters, stride), normalization))
    h = normalize(_conv3(h, filters), normalization)
    return _relu(tf.keras.layers.Add()([h, _shortcut(x, filters, stride, normalization)]))


def bottleneck_block(
    x: tf.Tensor, filters: int, stride: int, normalization: str = "batch"
) -> tf.Tensor:
    """Convolutions 1×1, 3×3, 1×1 and a shortcut, which is projected where the shape changes.

    The output has four times as many channels as there are inside. The stride is that of the 3×3
    convolution and the shortcut.
    """
    width = _EXPANSION * filters
    h = _relu(normalize(_conv(filters, 1, 1)(x), normalization))
    h = _relu(normalize(_conv3(h, filters, stride), normalization))
    h = normalize(_conv(width, 1, 1)(h), normalization)
    return _relu(tf.keras.layers.Add()([h, _shortcut(x, width, stride, normalization)]))


class ResNet(NormalizationOption, ImageBackbone):
    """What the residual networks share.

    Attributes:
        block: the kind of block.
        counts: number of blocks in each stage.
        width: channels of the first stage; each further stage has twice as many.
    """

    block: ClassVar[Callable[..., tf.Tensor]] = staticmethod(basic_block)
    counts: ClassVar[tuple[int, ...]]
    width: ClassVar[int] = 64
    min_side = 8

    def stem(self, x: tf.Tensor) -> tf.Tensor:
        """What comes before the first stage."""
        return _relu(normalize(_conv3(x, self.width), self.normalization))

    def network(self, input_shape: tuple[int, ...], projection_dim: int) -> tf.keras.Model:
        inputs = tf.keras.Input(input_shape)
        h = self.stem(inputs)
        for stage, count in enumerate(self.counts):
            for number in range(count):
                stride = 2 if stage > 0 and number == 0 else 1
                h = self.block(h, self.width * 2**stage, stride, self.normalization)
        return tf.keras.Model(inputs, project(average(h), projection_dim), name=self.name)


@registry.register
@dataclasses.dataclass(frozen=True)
class ResNet8(ResNet):
    """ResNet8, 77,392 trainable parameters with three input channels."""

    name = "resnet8"
    counts = (1, 1, 1)
    width = 16


@registry.register
@dataclasses.dataclass(frozen=True)
class ResNet18(ResNet):
    """ResNet18, 11,168,832 trainable parameters with three input channels."""

    name = "resnet18"
    counts = (2, 2, 2, 2)


@registry.register
@dataclasses.dataclass(frozen=True)
class ResNet18ImageNet(ResNet18):
    """ResNet18 in the form for ImageNet, as in torchvision: 11,176,512 trainable parameters.

    Its stem, a 7×7 convolution and a 3×3 maximum with stride 2 each, leaves a sixteenth of the
    positions of `resnet18` to the stages.
    """

    name = "resnet18_imagenet"

    def stem(self, x: tf.Tensor) -> tf.Tensor:
        h = _conv(self.width, 7, 2)(tf.keras.layers.ZeroPadding2D(3)(x))
        h = _relu(normalize(h, self.normalization))
        # What is padded is never larger than what a ReLU returns.
        return tf.keras.layers.MaxPool2D(3, 2)(tf.keras.layers.ZeroPadding2D(1)(h))


@registry.register
@dataclasses.dataclass(frozen=True)
class ResNet34(ResNet):
    """ResNet34, 21,276,992 trainable parameters with three input channels."""

    name = "resnet34"
    counts = (3, 4, 6, 3)


@registry.register
@dataclasses.dataclass(frozen=True)
class ResNet50(ResNet):
    """ResNet50, 23,500,352 trainable parameters with three input channels."""

    name = "resnet50"
    block = staticmethod(bottleneck_block)
    counts = (3, 4, 6, 3)
