"""Faster gradients of convolutions on processors, as products of matrices.

oneDNN computes the gradient of a convolution's weights in bfloat16 slowly where images are small
and channels many, as in the last stages of ResNets: a 3×3 convolution of 4×4 images with 512
channels takes nine times as long as the same sums as products of matrices, one for each position
in the kernel. In float32, both gradients of such a convolution are faster as products that leave
out the padding, to which three in ten of oneDNN's operations go. docs/local_step.md has the
measurements.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterable, Iterator

from etils import epy

with epy.lazy_imports():
    import tensorflow as tf

# Measured on two cores with AMX: products are faster up to images of 8×8 and from 128 channels.
_MAX_POSITIONS = 64
_MIN_WEIGHTS = 128 * 128
# In float32, oneDNN is near the peak for larger images and fewer channels.
_MAX_POSITIONS_FLOAT32 = 16
_MIN_WEIGHTS_FLOAT32 = 512 * 512


def speed_up(model: tf.keras.Model) -> None:
    """Lets the convolutions of a model compute their gradients in this way where it is faster.

    In bfloat16, this is the gradient of the weights; in float32, that of the input as well.
    Convolutions with several groups or with holes in their kernels stay as they are, and so do all
    if there is a GPU. What a layer is called, how it is saved and what it computes does not change;
    gradients differ from oneDNN's by rounding.
    """
    if tf.config.list_physical_devices("GPU"):
        return
    for layer in model.submodules:
        # Subclasses may compute something else.
        if type(layer) is not tf.keras.layers.Conv2D or not _is_plain(layer):
            continue
        if _fits(layer):
            layer.convolution_op = functools.partial(
                convolution, stride=layer.strides[0], padding=layer.padding.upper()
            )
        elif _fits_float32(layer):
            layer.convolution_op = functools.partial(
                convolution, padding="SAME", leaves_out_padding=True
            )


def _is_plain(layer: tf.keras.layers.Conv2D) -> bool:
    return (
        layer.data_format == "channels_last"
        and layer.dilation_rate == (1, 1)
        and layer.groups == 1
        # Keras knows no shape of layers that other layers call, or that are called with several.
        and None not in getattr(layer, "output_shape", (None, None, None))[1:3]
    )


def _fits_float32(layer: tf.keras.layers.Conv2D) -> bool:
    """Whether both gradients are faster as products of matrices that leave out the padding."""
    kernel, shape = layer.kernel.shape, layer.output_shape
    return (
        layer.compute_dtype == "float32"
        and layer.strides == (1, 1)
        and layer.padding == "same"
        and tuple(kernel[:2]) == (3, 3)
        # In images of one pixel, most places of the kernel meet nothing but padding.
        and min(shape[1:3]) > 1
        and shape[1] * shape[2] <= _MAX_POSITIONS_FLOAT32
        and kernel[2] * kernel[3] >= _MIN_WEIGHTS_FLOAT32
    )


def _fits(layer: tf.keras.layers.Conv2D) -> bool:
    """Whether the gradient can be computed as products of matrices, and faster than by oneDNN."""
    kernel, shape = layer.kernel.shape, layer.output_shape
    return (
        layer.compute_dtype == "bfloat16"
        # Padding of strided convolutions depends on the size of the image.
        and (layer.strides == (1, 1) or (layer.strides == (2, 2) and layer.padding == "valid"))
        and shape[1] * shape[2] <= _MAX_POSITIONS
        and kernel[2] * kernel[3] >= _MIN_WEIGHTS
    )


def convolution(
    x: tf.Tensor,
    kernel: tf.Tensor,
    *,
    stride: int = 1,
    padding: str,
    leaves_out_padding: bool = False,
) -> tf.Tensor:
    """A convolution whose gradient for the kernel is computed as one product per kernel position.

    Args:
        x: images [batch, height, width, channels].
        kernel: [rows, columns, channels, filters], of the same type.
        stride: in both directions.
        padding: "VALID", or "SAME" with stride 1.
        leaves_out_padding: whether the gradient for `x` is computed so, too, over those positions
            of the image for which the place of the kernel does not lie on the padding. Height and
            width are known, and every place of the kernel meets the image somewhere.

    Returns:
        What `tf.nn.conv2d` returns.
    """

    @tf.custom_gradient
    def convolve(x, kernel):
        def gradient(upstream):
            if leaves_out_padding:
                for_input = _gradient_of_input(x.shape, kernel, upstream)
            else:
                options = {"strides": [1, stride, stride, 1], "padding": padding}
                for_input = tf.raw_ops.Conv2DBackpropInput(
                    input_sizes=tf.shape(x), filter=kernel, out_backprop=upstream, **options
                )
            if padding == "SAME":
                pairs = _windows_without_padding(x, upstream, kernel.shape)
            else:
                pairs = _windows(x, upstream, kernel.shape, stride)
            return for_input, _gradient_of_kernel(pairs, kernel.shape)

        return tf.nn.conv2d(x, kernel, stride, padding), gradient

    # The kernel is a variable, of which the gradient would have to be returned apart.
    return convolve(tf.convert_to_tensor(x), tf.convert_to_tensor(kernel))


def _gradient_of_kernel(
    pairs: Iterable[tuple[tf.Tensor, tf.Tensor]], shape: tf.TensorShape
) -> tf.Tensor:
    """The gradient for a kernel of this shape: for each of its places, a sum over all positions.

    The pairs are, for each place, row by row, the images that it is multiplied by, and the gradient
    of the output in the same positions.
    """
    _, _, channels, filters = shape
    products = [
        tf.matmul(
            tf.reshape(read, [-1, channels]), tf.reshape(above, [-1, filters]), transpose_a=True
        )
        for read, above in pairs
    ]
    return tf.reshape(tf.stack(products), shape)


def _windows(
    x: tf.Tensor, upstream: tf.Tensor, shape: tf.TensorShape, stride: int
) -> Iterator[tuple[tf.Tensor, tf.Tensor]]:
    """The pairs for `_gradient_of_kernel` with padding "VALID"."""
    height, width = upstream.shape[1:3]
    for row, column in itertools.product(*map(range, shape[:2])):
        if stride == 1:
            yield x[:, row : row + height, column : column + width], upstream
        else:
            # Slices with steps take much longer.
            taken = tf.gather(x, range(row, row + stride * height, stride), axis=1)
            columns = range(column, column + stride * width, stride)
            yield tf.gather(taken, columns, axis=2), upstream


def _windows_without_padding(
    x: tf.Tensor, upstream: tf.Tensor, shape: tf.TensorShape
) -> Iterator[tuple[tf.Tensor, tf.Tensor]]:
    """The pairs for `_gradient_of_kernel` with stride 1 and padding "SAME"."""
    for _, in_rows, out_rows in _unpadded(shape[0], x.shape[1]):
        for _, in_columns, out_columns in _unpadded(shape[1], x.shape[2]):
            yield x[:, in_rows, in_columns], upstream[:, out_rows, out_columns]


def _gradient_of_input(shape: tf.TensorShape, kernel: tf.Tensor, upstream: tf.Tensor) -> tf.Tensor:
    """The gradient for images of this shape, with stride 1 and padding "SAME"."""
    height, width = shape[1:3]
    rows, columns, channels, filters = kernel.shape
    products = []
    for row, in_rows, out_rows in _unpadded(rows, height):
        for column, in_columns, out_columns in _unpadded(columns, width):
            above = upstream[:, out_rows, out_columns]
            flat = tf.reshape(above, [-1, filters])
            product = tf.matmul(flat, kernel[row, column], transpose_b=True)
            product = tf.reshape(product, [*tf.unstack(tf.shape(above)[:3]), channels])
            around = [
                [part.start, size - part.stop]
                for part, size in ((in_rows, height), (in_columns, width))
            ]
            products.append(tf.pad(product, [[0, 0], *around, [0, 0]]))
    return tf.add_n(products)


def _unpadded(size: int, length: int) -> Iterator[tuple[int, slice, slice]]:
    """The places along one axis of a kernel, and where they meet the image, in input and output."""
    for place in range(size):
        shift = place - (size - 1) // 2
        start = max(0, -shift)
        stop = max(start, min(length, length - shift))
        yield place, slice(start + shift, stop + shift), slice(start, stop)
