"""Initial values of the variables of a Keras network, as a function of a seed."""

from __future__ import annotations

import contextlib
import functools
import zlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from tff_pcdd.runtime import _tf_private

# What a variable without a value takes over from the layer that makes it.
_TAKEN_OVER = ("name", "dtype", "trainable", "constraint", "synchronization", "aggregation")


class FirstValues:
    """Initial values of variables, drawn as soon as the piece of each variable is known.

    Keras layers without a seed of their own would draw from global random state. Here each of their
    initializers is recreated with a seed derived from the network's seed, the name of the piece,
    and the number of the variable in it. The initial weights of any Keras model are therefore a
    function of the network's seed, and pieces of the same name and shapes have the same initial
    weights in all methods, whatever other pieces a method has.
    """

    def __init__(self) -> None:
        # Layers in bfloat16 wrap their variables; the handle of a variable stays the same.
        self._initial: dict[int, tuple[tf.Variable, Any]] = {}

    def remember(self, variable: tf.Variable, initial_value: Any) -> None:
        """Stores the initial value that a variable should have."""
        self._initial[id(variable.handle)] = variable, initial_value

    def assign(self, parts: Mapping[str, tf.keras.layers.Layer], seed: int) -> None:
        """Sets all variables of a network to their initial values."""
        for name, part in parts.items():
            for number, variable in enumerate(part.weights):
                entropy = [seed, zlib.crc32(name.encode()), number]
                _, initial_value = self._initial[id(variable.handle)]
                value = _reseeded(initial_value, entropy)
                variable.assign(value() if callable(value) else value)


def _reseeded(initial_value: Any, entropy: list[int]) -> Any:
    """The same initial value, with a seed made of `entropy` if its initializer has none."""
    initializer = initial_value.func if isinstance(initial_value, functools.partial) else None
    if not isinstance(initializer, tf.keras.initializers.Initializer):
        return initial_value
    config = initializer.get_config()
    if "seed" not in config or config["seed"] is not None:
        return initial_value
    config["seed"] = int(np.random.SeedSequence(entropy).generate_state(1)[0] % 2**31)
    remade = type(initializer).from_config(config)
    return functools.partial(remade, *initial_value.args, **initial_value.keywords)


@contextlib.contextmanager
def deferred() -> Iterator[FirstValues]:
    """Creates variables without their values; yields the `FirstValues` to assign to them later."""
    first = FirstValues()
    with _creating(first.remember):
        yield first


@contextlib.contextmanager
def zeros() -> Iterator[None]:
    """Creates variables without their values, for those that are assigned before they are read.

    In a graph that is built, they have none at all; elsewhere they are zero.
    """
    with _creating(lambda variable, initial_value: None):
        yield


@contextlib.contextmanager
def _creating(made: Callable[[tf.Variable, Any], None]) -> Iterator[None]:
    """Creates variables without values; calls `made(variable, initial value)` for each of them."""

    def create(next_creator, **kwargs):
        value = kwargs["initial_value"]
        if isinstance(value, functools.partial):
            # In a graph outside of functions.
            if not tf.executing_eagerly() and not tf.inside_function():
                options = {name: kwargs[name] for name in _TAKEN_OVER if name in kwargs}
                shape = kwargs.get("shape")
                shape = value.args[0] if shape is None else shape
                variable = _tf_private.variable_without_value(shape=shape, **options)
                made(variable, value)
                return variable
            zero = tf.zeros_initializer()
            kwargs["initial_value"] = functools.partial(zero, *value.args, **value.keywords)
        variable = next_creator(**kwargs)
        made(variable, value)
        return variable

    with tf.variable_creator_scope(create):
        yield
