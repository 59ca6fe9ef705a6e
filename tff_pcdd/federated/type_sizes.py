"""Sizes of values by their TFF type."""

from __future__ import annotations

import math

import numpy as np
import tensorflow_federated as tff


def tensors_of(type_spec: tff.Type) -> list[tff.TensorType]:
    """The tensors that a type consists of, in order."""
    if isinstance(type_spec, tff.TensorType):
        return [type_spec]
    return [tensor for element in type_spec.children() for tensor in tensors_of(element)]


def tensor_sizes(type_spec: tff.Type) -> list[int]:
    """Entries of each tensor of a type whose shapes are all known."""
    return [math.prod(tensor.shape) for tensor in tensors_of(type_spec)]


def count_bytes(type_spec: tff.Type) -> int:
    """Bytes of a value of a type; tensors whose shape is not known do not count."""
    return sum(
        math.prod(tensor.shape) * np.dtype(tensor.dtype).itemsize
        for tensor in tensors_of(type_spec)
        if tensor.shape is not None and None not in tensor.shape
    )


def message_bytes(message_type: tff.Type) -> int:
    """Bytes of the server's message; without tensors, the round's number is not sent either."""
    parts = [message_type[name] for name in ("weights", "server")]
    return count_bytes(message_type) if any(map(tensors_of, parts)) else 0
