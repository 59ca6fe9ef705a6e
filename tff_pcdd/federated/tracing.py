"""`tf.function`s of clients and servers, and loops in them."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

import tensorflow as tf

from tff_pcdd import draws
from tff_pcdd.methods.network import Network
from tff_pcdd.runtime import _tf_private

T = TypeVar("T")


def function(
    python_function: Callable[..., Any], net: Network, **options: Any
) -> tf.types.experimental.GenericFunction:
    """A `tf.function`, translated by AutoGraph only where the network needs it.

    The translation makes `==` and `!=` compare the values of tensors. In TFF's graphs they compare
    Python objects otherwise, so `labels == predicted` would be False without an error.
    """

    @functools.wraps(python_function)
    def checked(*arguments: Any) -> Any:
        result = python_function(*arguments)
        net.check_variables()
        return result

    features = tf.autograph.experimental.Feature.EQUALITY_OPERATORS
    return tf.function(
        checked,
        autograph=net.autograph,
        experimental_autograph_options=features,
        **options,
    )


def compiled(
    python_function: Callable[..., Any], net: Network
) -> tf.types.experimental.GenericFunction:
    """As `function`, compiled by XLA once for each shape of the arguments, with the same draws."""

    def traced(*arguments: Any) -> Any:
        _tf_private.note_use_of_xla()
        with draws.compiled():
            return python_function(*arguments)

    return function(traced, net, jit_compile=True)


def repeat(times: int | tf.Tensor, body: Callable[[tf.Tensor, T], T], initial: T) -> T:
    """Computes `state = body(number, state)` for the numbers from 0 to `times` - 1.

    The loop is part of the graph, so that its body is traced once.
    """

    def numbered(number: tf.Tensor, state: T) -> tuple[tf.Tensor, T]:
        return number + 1, body(number, state)

    return tf.while_loop(lambda number, _: number < times, numbered, (tf.constant(0), initial))[1]
