"""How the variables of a Keras network get their first values."""

from __future__ import annotations

import contextlib
import functools
import zlib
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import tensorflow as tf


class FirstValues:
    """The first values of variables, to be drawn once it is known which piece they belong to.

    Keras layers without a seed of their own would draw from global random state. Here each of their
    initialisers is remade with a seed derived from a network's seed, the name of the piece, and the
    number of the variable within it. So a network's first weights are a function of its seed, for
    any Keras model, and pieces of the same name and form start alike in all methods, whatever else
    a method has.
    """

    def __init__(self):
        self._initial: dict[Any, Any] = {}

    def remember(self, variable: tf.Variable, initial_value: Any) -> None:
        """Notes what a variable was to start with."""
        self._initial[variable.ref()] = initial_value

    def assign(self, parts: Mapping[str, tf.keras.layers.Layer], seed: int) -> None:
        """Sets all variables of a network to their first values.

        Args:
            parts: the network's pieces by name.
            seed: the network's seed.
        """
        for name, part in parts.items():
            for number, variable in enumerate(part.weights):
                entropy = [seed, zlib.crc32(name.encode()), number]
                value = _reseeded(self._initial[variable.ref()], entropy)
                variable.assign(value() if callable(value) else value)


def _reseeded(initial_value: Any, entropy: list[int]) -> Any:
    """The same initial value, drawn with a seed made of `entropy` if it has none of its own."""
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
def deferred():
    """Variables made inside start as zeros; yields the `FirstValues` that they were to have."""
    first = FirstValues()
    with _creating(first.remember):
        yield first


@contextlib.contextmanager
def zeros():
    """Variables made inside start as zeros: they are about to be assigned, and drawing is slow."""
    with _creating(lambda variable, initial_value: None):
        yield


@contextlib.contextmanager
def _creating(made: Callable[[tf.Variable, Any], None]):
    """Variables made inside start as zeros; `made(variable, initial value)` hears of each."""

    def create(next_creator, **kwargs):
        value = kwargs["initial_value"]
        if isinstance(value, functools.partial):
            zero = tf.zeros_initializer()
            kwargs["initial_value"] = functools.partial(zero, *value.args, **value.keywords)
        variable = next_creator(**kwargs)
        made(variable, value)
        return variable

    with tf.variable_creator_scope(create):
        yield
