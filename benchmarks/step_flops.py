"""Floating-point operations and least memory traffic of a network's layers in a training step.

A multiplication and an addition count as two operations. The least traffic reads every input once
and writes the result once, in float32; traffic beyond it depends on the implementation.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Sequence

import tensorflow as tf

# The three products of a layer: its output, and the gradients of its input and of its weights.
FORWARD, TO_INPUT, TO_WEIGHTS = "forward", "gradient of input", "gradient of weights"

_BYTES = 4


@dataclasses.dataclass(frozen=True)
class Product:
    """One product of a layer for one batch.

    Attributes:
        layer: name of the Keras layer.
        shape: what the layer does, as text.
        kind: `FORWARD`, `TO_INPUT` or `TO_WEIGHTS`.
        flops: floating-point operations.
        traffic: least bytes read and written.
    """

    layer: str
    shape: str
    kind: str
    flops: int
    traffic: int


def products(model: tf.keras.Model, batch_size: int) -> list[Product]:
    """The products of all convolutions and dense layers in a training step, in order.

    The first layer needs no gradient of its input.

    Args:
        model: a network without nested models.
        batch_size: samples in the step.
    """
    layers = (tf.keras.layers.Conv2D, tf.keras.layers.Dense)
    found = sorted((x for x in model.layers if isinstance(x, layers)), key=_position)
    result = []
    for index, layer in enumerate(found):
        inputs, outputs = layer.input_shape[1:], layer.output_shape[1:]
        weights = layer.kernel.shape
        # Every weight is used once for each position of the output.
        flops = 2 * batch_size * math.prod(outputs[:-1]) * math.prod(weights)
        values = batch_size * (math.prod(inputs) + math.prod(outputs)) + math.prod(weights)
        kinds = (FORWARD, TO_INPUT, TO_WEIGHTS) if index else (FORWARD, TO_WEIGHTS)
        result += [
            Product(layer.name, describe(layer), kind, flops, _BYTES * values) for kind in kinds
        ]
    return result


def describe(layer: tf.keras.layers.Layer) -> str:
    """What a layer does, such as "3×3/2, 32×32×64 → 16×16×128", without its padding."""
    sizes = [_times(shape[1:]) for shape in (layer.input_shape, layer.output_shape)]
    if not isinstance(layer, tf.keras.layers.Conv2D):
        return f"dense, {sizes[0]} → {sizes[1]}"
    stride = f"/{layer.strides[0]}" if layer.strides[0] > 1 else ""
    return f"{_times(layer.kernel_size)}{stride}, {sizes[0]} → {sizes[1]}"


def total(found: Sequence[Product]) -> int:
    """All floating-point operations."""
    return sum(product.flops for product in found)


def _times(shape: Sequence[int]) -> str:
    return "×".join(map(str, shape))


def _position(layer: tf.keras.layers.Layer) -> tuple[bool, int]:
    """Convolutions before dense layers, each in the order in which Keras numbered them."""
    number = re.search(r"_(\d+)$", layer.name)
    return isinstance(layer, tf.keras.layers.Dense), int(number[1]) if number else 0
