"""The precision of backbones: which numbers their layers compute with.

Under bfloat16, layers that say nothing about their type take Keras' policy `mixed_bfloat16` while
the backbone is built: they convert their inputs and their float32 weights to bfloat16. The features
leave the backbone as float32, and so does everything behind it: projection, heads and losses.
"""

from __future__ import annotations

import contextlib
import contextvars
import threading
from collections.abc import Iterator

from etils import epy

with epy.lazy_imports():
    import tensorflow as tf

    from tff_pcdd.models import convolution_gradients, pooling_gradients

# tf32 is float32 whose products GPUs compute with 10 bits of the factors' fractions.
PRECISIONS = ("float32", "tf32", "bfloat16")

# The name of the layer that converts features to float32.
CAST = "to_float32"

# Keras has one policy for all threads, so only one thread at a time builds a backbone.
_lock = threading.RLock()
_current: contextvars.ContextVar[str] = contextvars.ContextVar("precision", default="float32")


@contextlib.contextmanager
def scope(precision: str) -> Iterator[None]:
    """Layers that are made inside compute in one of `PRECISIONS`, with float32 weights.

    Except with "bfloat16", Keras' policy is left as it is.
    """
    with _lock:
        token = _current.set(precision)
        mixed = tf.keras.mixed_precision
        policy = mixed.global_policy()
        try:
            if precision == "bfloat16":
                mixed.set_global_policy("mixed_bfloat16")
            yield
        finally:
            if precision == "bfloat16":
                mixed.set_global_policy(policy)
            _current.reset(token)


def with_float32_output(model: tf.keras.Model) -> tf.keras.Model:
    """The same model, whose features are converted to float32 if it is built in bfloat16."""
    convolution_gradients.speed_up(model)
    pooling_gradients.replace(model)
    if _current.get() != "bfloat16":
        return model
    if getattr(model.output, "dtype", None) != tf.bfloat16:
        return model
    cast = tf.keras.layers.Activation("linear", dtype="float32", name=CAST)
    return tf.keras.Model(model.inputs, cast(model.output), name=model.name)
