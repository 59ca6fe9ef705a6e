"""Simple-CNN whose convolutions are products of their patches with matrices, for `gpu_graphs`.

XLA can put products into a CUDA graph, but not convolutions.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Sequence

import tensorflow as tf

from tff_pcdd.models.simple_cnn import SimpleCNN


@dataclasses.dataclass(frozen=True)
class SimpleCNNWithProducts(SimpleCNN):
    """Simple-CNN with the same names of weights, for images of 16 pixels a side or more."""

    name = "simple_cnn_products"
    min_side = 16

    def network(self, input_shape: tuple[int, ...], projection_dim: int) -> tf.keras.Model:
        model = super().network(input_shape, projection_dim)
        for layer in model.layers:
            if isinstance(layer, tf.keras.layers.Conv2D):
                layer.convolution_op = functools.partial(_convolve, size=layer.kernel_size)
        return model


def _convolve(x: tf.Tensor, kernel: tf.Tensor, size: Sequence[int]) -> tf.Tensor:
    """Convolution without padding, with steps of one pixel.

    Args:
        x: images [batch, height, width, channels].
        kernel: its weights [*size, channels, filters].
        size: height and width of the window.
    """
    rows, columns = x.shape[1] - size[0] + 1, x.shape[2] - size[1] + 1
    patches = [
        x[:, row : row + rows, column : column + columns]
        for row, column in itertools.product(*map(range, size))
    ]
    matrix = tf.reshape(kernel, [-1, kernel.shape[-1]])
    return tf.tensordot(tf.concat(patches, axis=-1), matrix, axes=1)
