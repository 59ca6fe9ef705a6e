"""Gradients of max-pooling in compiled training, as operations of which XLA adds up the results.

Within XLA, TensorFlow has no deterministic gradient of max-pooling and refuses to compile it where
determinism is required. Here it is a masked copy of the output's gradient for each position in the
window, which is deterministic, and which XLA can join to the operations around it.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Sequence
from typing import Any

from etils import epy

from tff_pcdd import draws

with epy.lazy_imports():
    import tensorflow as tf


def replace(model: tf.keras.Model) -> None:
    """Lets the max-pooling layers of a model compute their gradients in this way within XLA.

    What a layer is called, how it is saved and what it computes does not change.
    """
    for layer in model.submodules:
        # Subclasses may compute something else.
        if type(layer) is tf.keras.layers.MaxPooling2D and layer.padding == "valid":
            layer.pool_function = functools.partial(_pool, layer.pool_function)


def _pool(usual: Callable[..., tf.Tensor], x: tf.Tensor, **options: Any) -> tf.Tensor:
    """Called by Keras in the place of its usual function."""
    if not draws.is_compiled() or options["data_format"] != "NHWC":
        return usual(x, **options)
    return max_pool(x, options["ksize"][1:3], options["strides"][1:3])


def max_pool(x: tf.Tensor, size: Sequence[int], strides: Sequence[int]) -> tf.Tensor:
    """Max-pooling without padding; of equal largest values, the first one gets the gradient.

    Args:
        x: images [batch, height, width, channels]; height and width are known.
        size: height and width of the window.
        strides: its steps in both directions.

    Returns:
        What `tf.nn.max_pool2d` returns with padding "VALID".
    """

    @tf.custom_gradient
    def pooled(x):
        largest = tf.nn.max_pool2d(x, size, strides, "VALID")

        def gradient(upstream):
            height, width = x.shape[1:3]
            rows, columns = largest.shape[1:3]
            places = [
                (
                    slice(row, row + strides[0] * (rows - 1) + 1, strides[0]),
                    slice(column, column + strides[1] * (columns - 1) + 1, strides[1]),
                )
                for row, column in itertools.product(*map(range, size))
            ]
            # Not where x equals `largest`: XLA may compute x once more for the gradient, and round
            # it in another way.
            best = x[:, places[0][0], places[0][1]]
            first = tf.zeros_like(best, tf.int32)
            for number, (down, across) in enumerate(places):
                read = x[:, down, across]
                first = tf.where(read > best, number, first)
                best = tf.maximum(read, best)
            total = tf.zeros_like(x)
            for number, (down, across) in enumerate(places):
                taken = tf.where(tf.equal(first, number), upstream, tf.zeros_like(upstream))
                around = [[down.start, height - down.stop], [across.start, width - across.stop]]
                total += tf.pad(_spread(taken, strides), [[0, 0], *around, [0, 0]])
            return total

        return largest, gradient

    return pooled(x)


def _spread(values: tf.Tensor, strides: Sequence[int]) -> tf.Tensor:
    """Values [b, h, w, c] with zeros between rows and columns, so that they are strides apart."""
    _, height, width, channels = values.shape
    zeros = [[0, stride - 1] for stride in strides]
    apart = tf.pad(
        values[:, :, None, :, None], [[0, 0], [0, 0], zeros[0], [0, 0], zeros[1], [0, 0]]
    )
    apart = tf.reshape(apart, [-1, height * strides[0], width * strides[1], channels])
    # Nothing follows the last row and column.
    return apart[:, : (height - 1) * strides[0] + 1, : (width - 1) * strides[1] + 1]
