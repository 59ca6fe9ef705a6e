"""Faster gradients of convolutions in bfloat16 on processors.

oneDNN computes the gradient of a convolution's weights in bfloat16 slowly where images are small
and channels many, as in the last stages of ResNets: a 3×3 convolution of 4×4 images with 512
channels takes nine times as long as the same sums as products of matrices, one for each position
in the kernel. docs/local_step.md has the measurements.
"""

from __future__ import annotations

import functools

from etils import epy

with epy.lazy_imports():
    import tensorflow as tf

# Measured on two cores with AMX: products are faster up to images of 8×8 and from 128 channels.
_MAX_POSITIONS = 64
_MIN_WEIGHTS = 128 * 128


def speed_up(model: tf.keras.Model) -> None:
    """Lets the bfloat16 convolutions of a model compute the gradient of their weights in this way.

    Convolutions with several groups or with holes in their kernels stay as they are, and so do all
    if there is a GPU. What a layer is called, how it is saved and what it computes does not change;
    gradients differ from oneDNN's by rounding.
    """
    if tf.config.list_physical_devices("GPU"):
        return
    for layer in model.submodules:
        # Subclasses may compute something else.
        if type(layer) is tf.keras.layers.Conv2D and _fits(layer):
            layer.convolution_op = functools.partial(
                convolution, stride=layer.strides[0], padding=layer.padding.upper()
            )


def _fits(layer: tf.keras.layers.Conv2D) -> bool:
    """Whether the gradient can be computed as products of matrices, and faster than by oneDNN."""
    kernel, shape = layer.kernel.shape, layer.output_shape
    return (
        layer.compute_dtype == "bfloat16"
        and layer.data_format == "channels_last"
        and layer.dilation_rate == (1, 1)
        and layer.groups == 1
        # Padding of strided convolutions depends on the size of the image.
        and (layer.strides == (1, 1) or (layer.strides == (2, 2) and layer.padding == "valid"))
        and None not in shape[1:3]
        and shape[1] * shape[2] <= _MAX_POSITIONS
        and kernel[2] * kernel[3] >= _MIN_WEIGHTS
    )


def convolution(x: tf.Tensor, kernel: tf.Tensor, *, stride: int = 1, padding: str) -> tf.Tensor:
    """A convolution whose gradient for the kernel is computed as one product per kernel position.

    Args:
        x: images [batch, height, width, channels].
        kernel: [rows, columns, channels, filters], of the same type.
        stride: in both directions.
        padding: "VALID", or "SAME" with stride 1.

    Returns:
        What `tf.nn.conv2d` returns.
    """

    @tf.custom_gradient
    def convolve(x, kernel):
        def gradient(upstream):
            options = {"strides": [1, stride, stride, 1], "padding": padding}
            for_input = tf.raw_ops.Conv2DBackpropInput(
                input_sizes=tf.shape(x), filter=kernel, out_backprop=upstream, **options
            )
            padded = _pad(x, kernel.shape) if padding == "SAME" else x
            return for_input, _gradient_of_kernel(padded, upstream, kernel.shape, stride)

        return tf.nn.conv2d(x, kernel, stride, padding), gradient

    # The kernel is a variable, of which the gradient would have to be returned apart.
    return convolve(tf.convert_to_tensor(x), tf.convert_to_tensor(kernel))


def _pad(x: tf.Tensor, shape: tf.TensorShape) -> tf.Tensor:
    """Pads images as TensorFlow does for a kernel of this shape: the odd one comes last."""
    both = [[(size - 1) // 2, size // 2] for size in shape[:2]]
    return tf.pad(x, [[0, 0], *both, [0, 0]])


def _gradient_of_kernel(
    x: tf.Tensor, upstream: tf.Tensor, shape: tf.TensorShape, stride: int
) -> tf.Tensor:
    """Sums over batch and positions of the products of shifted inputs and the output's gradient."""
    rows, columns, channels, filters = shape
    flat = tf.reshape(upstream, [-1, filters])

    def shifted(row, column):
        """What the kernel's entry at this place is multiplied by, in all positions."""
        height, width = upstream.shape[1:3]
        if stride == 1:
            return x[:, row : row + height, column : column + width]
        # Slices with steps take much longer.
        taken = tf.gather(x, range(row, row + stride * height, stride), axis=1)
        return tf.gather(taken, range(column, column + stride * width, stride), axis=2)

    products = [
        tf.matmul(tf.reshape(shifted(row, column), [-1, channels]), flat, transpose_a=True)
        for row in range(rows)
        for column in range(columns)
    ]
    return tf.reshape(tf.stack(products), shape)
