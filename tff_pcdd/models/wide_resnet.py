"""Wide residual network, WRN-28-10.

Wide Residual Networks; S. Zagoruyko, N. Komodakis; BMVC 2016; as FedMR's experiments on CIFAR-100
have it: normalisation and ReLU before each convolution, dropout of 0.3 between the two of a block,
convolutions with bias, a last normalisation that takes 0.9 of every batch into its averages,
global average pooling, d = 640.

Convolutions start from He's normal distribution over the fan-out, biases at 0. Padding is explicit,
see `resnet`.
"""

import tensorflow as tf

from tff_pcdd.layers import StatelessDropout
from tff_pcdd.models.registry import normalize, project, register
from tff_pcdd.options import OptionError

_DEPTH, _WIDTH, _DROPOUT = 28, 10, 0.3

# Share of the old average that the last batch normalisation keeps (PyTorch's momentum of 0.9).
_LAST_MOMENTUM = 0.1


def _conv(x, filters: int, size: int, stride: int = 1):
    he = tf.keras.initializers.VarianceScaling(2.0, "fan_out", "untruncated_normal")
    if size > 1:
        x = tf.keras.layers.ZeroPadding2D(size // 2)(x)
    return tf.keras.layers.Conv2D(filters, size, strides=stride, kernel_initializer=he)(x)


def wide_block(x: tf.Tensor, filters: int, stride: int, norm: str = "batch") -> tf.Tensor:
    """Two 3×3 convolutions with dropout between them, and a shortcut of the block's raw input.

    Args:
        x: Keras tensor [batch, height, width, channels].
        filters: channels of the output.
        stride: of the second convolution and the shortcut.
        norm: "batch" or "group".

    Returns:
        Keras tensor [batch, ceil(height/stride), ceil(width/stride), filters].
    """
    relu = tf.keras.layers.ReLU
    h = _conv(relu()(normalize(x, norm)), filters, 3)
    h = StatelessDropout(_DROPOUT)(h)
    h = _conv(relu()(normalize(h, norm)), filters, 3, stride)
    if stride != 1 or x.shape[-1] != filters:
        x = _conv(x, filters, 1, stride)
    return tf.keras.layers.Add()([h, x])


@register("wide_resnet")
def wide_resnet(
    input_shape: tuple[int, ...], projection_dim: int = 0, norm: str = "batch"
) -> tf.keras.Model:
    """WRN-28-10; 36,546,980 trainable parameters with a linear head for 100 classes."""
    if min(input_shape[:2]) < 8:
        raise OptionError(
            f"--model=wide_resnet: needs images of at least 8×8 pixels, the data has {input_shape}"
        )
    inputs = tf.keras.Input(input_shape)
    h = _conv(inputs, 16, 3)
    for stage in range(3):
        for number in range((_DEPTH - 4) // 6):
            h = wide_block(h, 16 * _WIDTH * 2**stage, 2 if stage and not number else 1, norm)
    h = tf.keras.layers.ReLU()(normalize(h, norm, momentum=_LAST_MOMENTUM))
    h = tf.keras.layers.GlobalAveragePooling2D()(h)
    return tf.keras.Model(inputs, project(h, projection_dim), name="wide_resnet")
