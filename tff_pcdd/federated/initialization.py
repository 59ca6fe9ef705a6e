"""How the variables of a Keras network get their first values."""

from __future__ import annotations

import contextlib
import functools

import numpy as np
import tensorflow as tf


@contextlib.contextmanager
def seeded(seed: int):
    """Variables made inside draw their initial values from `seed` and their place in the order.

    Keras layers without a seed of their own would draw from global random state; here each of their
    initialisers is remade with a seed derived from (seed, number of the variable), so that a
    network's first weights are a function of the seed alone, for any Keras model.
    """
    count = 0

    def create(next_creator, **kwargs):
        nonlocal count
        value = kwargs["initial_value"]
        initializer = value.func if isinstance(value, functools.partial) else None
        if isinstance(initializer, tf.keras.initializers.Initializer):
            config = initializer.get_config()
            if "seed" in config and config["seed"] is None:
                derived = np.random.SeedSequence([seed, count]).generate_state(1)[0] % 2**31
                config["seed"] = int(derived)
                remade = type(initializer).from_config(config)
                kwargs["initial_value"] = functools.partial(remade, *value.args, **value.keywords)
        count += 1
        return next_creator(**kwargs)

    with tf.variable_creator_scope(create):
        yield


@contextlib.contextmanager
def zeros():
    """Variables made inside start as zeros: they are about to be assigned, and drawing is slow."""

    def create(next_creator, **kwargs):
        value = kwargs["initial_value"]
        if isinstance(value, functools.partial):
            zero = tf.zeros_initializer()
            kwargs["initial_value"] = functools.partial(zero, *value.args, **value.keywords)
        return next_creator(**kwargs)

    with tf.variable_creator_scope(create):
        yield
