"""`tf.function`s of clients and servers, and loops in them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import tensorflow as tf

from tff_pcdd.methods.contract import Method
from tff_pcdd.methods.network import Network

T = TypeVar("T")

_WITHOUT_PYTHON_CONTROL_FLOW = ("tff_pcdd.", "keras.")


def function(
    python_function: Callable[..., Any], method: Method, net: Network, **options: Any
) -> tf.types.experimental.GenericFunction:
    """A `tf.function`, translated by AutoGraph only where that is needed.

    AutoGraph takes most of the time that tracing takes, and is needed for Python loops and
    conditions on tensors. There are none in this package, but may be in methods and layers from
    elsewhere.

    Args:
        python_function: what is traced.
        method: the method that it calls.
        net: the network that it calls.
        **options: other options of `tf.function`.
    """
    parts = [part for part in net.parts.values() if isinstance(part, tf.Module)]
    owners = [method, *parts, *(module for part in parts for module in part.submodules)]
    return tf.function(
        python_function, autograph=not all(map(_has_no_python_control_flow, owners)), **options
    )


def _has_no_python_control_flow(owner: Any) -> bool:
    cls = type(owner)
    # A Lambda layer of Keras calls a function from elsewhere.
    return cls.__module__.startswith(_WITHOUT_PYTHON_CONTROL_FLOW) and not isinstance(
        owner, tf.keras.layers.Lambda
    )


def repeat(times: int | tf.Tensor, body: Callable[[tf.Tensor, T], T], initial: T) -> T:
    """Computes `state = body(number, state)` for the numbers from 0 to `times` - 1.

    The loop is part of the graph, so that its body is traced once.

    Args:
        times: int32 scalar.
        body: returns the new state, of the same structure, types and shapes; `number` is an int32
            scalar.
        initial: the first state, a nested structure of tensors.
    """

    def numbered(number: tf.Tensor, state: T) -> tuple[tf.Tensor, T]:
        return number + 1, body(number, state)

    return tf.while_loop(lambda number, _: number < times, numbered, (tf.constant(0), initial))[1]
