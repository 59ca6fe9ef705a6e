"""Wide residual network, WRN-28-10.

Wide Residual Networks; S. Zagoruyko, N. Komodakis; BMVC 2016; as in FedMR's experiments on
CIFAR-100: normalization and ReLU before each convolution, dropout of 0.3 between the two
convolutions of a block, convolutions with bias, global average pooling, d = 640. In the last batch
normalization, the moving averages give weight 0.9 to the statistics of each new batch.

Convolutions start from He's normal distribution over the fan-out, biases at 0. Padding is explicit,
see `resnet`.
"""

from __future__ import annotations

import dataclasses

from etils import epy

from tff_pcdd.models.backbone import ImageBackbone, NormalizationOption, registry
from tff_pcdd.models.building import average, normalize, project

with epy.lazy_imports():
    import tensorflow as tf

    from tff_pcdd import layers

_DEPTH, _WIDTH, _DROPOUT = 28, 10, 0.3

# Share of the old average that the last batch normalization keeps (PyTorch's momentum of 0.9).
_LAST_MOMENTUM = 0.1


def _conv(x: tf.Tensor, filters: int, size: int, stride: int = 1) -> tf.Tensor:
    he = tf.keras.initializers.VarianceScaling(2.0, "fan_out", "untruncated_normal")
    if size > 1:
        x = tf.keras.layers.ZeroPadding2D(size // 2)(x)
    return tf.keras.layers.Conv2D(filters, size, strides=stride, kernel_initializer=he)(x)


def wide_block(x: tf.Tensor, filters: int, stride: int, normalization: str = "batch") -> tf.Tensor:
    """Two 3×3 convolutions with dropout between them, and a shortcut of the block's raw input.

    The stride is that of the second convolution and the shortcut.
    """
    relu = tf.keras.layers.ReLU
    h = _conv(relu()(normalize(x, normalization)), filters, 3)
    h = layers.StatelessDropout(_DROPOUT)(h)
    h = _conv(relu()(normalize(h, normalization)), filters, 3, stride)
    if stride != 1 or x.shape[-1] != filters:
        x = _conv(x, filters, 1, stride)
    return tf.keras.layers.Add()([h, x])


@registry.register
@dataclasses.dataclass(frozen=True)
class WideResNet(NormalizationOption, ImageBackbone):
    """WRN-28-10; 36,546,980 trainable parameters with a linear head for 100 classes."""

    name = "wide_resnet"
    min_side = 8

    def network(self, input_shape: tuple[int, ...], projection_dim: int) -> tf.keras.Model:
        inputs = tf.keras.Input(input_shape)
        h = _conv(inputs, 16, 3)
        for stage in range(3):
            for number in range((_DEPTH - 4) // 6):
                stride = 2 if stage and not number else 1
                h = wide_block(h, 16 * _WIDTH * 2**stage, stride, self.normalization)
        h = normalize(h, self.normalization, momentum=_LAST_MOMENTUM)
        h = average(tf.keras.layers.ReLU()(h))
        return tf.keras.Model(inputs, project(h, projection_dim), name=self.name)
