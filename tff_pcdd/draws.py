"""Stateless random draws that are the same on every device, with and without XLA.

Those of TensorFlow differ under XLA, which makes another key of a seed with a negative part, and a
float of other bits of the same integer. In a block `compiled()`, key and float are computed here as
TensorFlow's kernels do it; elsewhere, the draws are TensorFlow's own operations, except for
`indices`: TensorFlow's kernels for processors and for GPUs draw other ones.
"""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Iterator
from typing import Any

from etils import epy

with epy.lazy_imports():
    import tensorflow as tf

_PHILOX = 1  # The value of `tf.random.Algorithm`.
# The key by which TensorFlow turns a seed into the key and the counter of the draws.
_SEED_KEY = 0x02461E293EC8F720

_compiling: contextvars.ContextVar[bool] = contextvars.ContextVar("compiling", default=False)


@contextlib.contextmanager
def compiled() -> Iterator[None]:
    """A block in which a function is traced that XLA compiles."""
    token = _compiling.set(True)
    try:
        yield
    finally:
        _compiling.reset(token)


def is_compiled() -> bool:
    """Whether this is within a block `compiled()`."""
    return _compiling.get()


def fold_in(seed: tf.Tensor, number: int | tf.Tensor) -> tf.Tensor:
    """Derives a seed, int32 [2], from a seed and an int32 number."""
    if not _compiling.get():
        return tf.random.experimental.stateless_fold_in(seed, number)
    return tf.stack([_integers([], seed, tf.int32), tf.convert_to_tensor(number)])


def split(seed: tf.Tensor, number: int) -> list[tf.Tensor]:
    """Derives several seeds, int32 [2] each, from one."""
    if not _compiling.get():
        return tf.unstack(tf.random.experimental.stateless_split(seed, number))
    return tf.unstack(_integers([number, 2], seed, tf.int32))


def uniform(
    shape: Any, seed: tf.Tensor, minval: Any = 0, maxval: Any = 1, dtype: Any = None
) -> tf.Tensor:
    """Uniform draws from `minval` up to, but without, `maxval`.

    Args:
        shape: of the draws; integers or an integer tensor.
        seed: int32 [2].
        minval: the least value.
        maxval: the end of the values.
        dtype: float32, which is the default, or int32.
    """
    dtype = dtype or tf.float32
    if not _compiling.get():
        return tf.random.stateless_uniform(shape, seed, minval, maxval, dtype)
    if dtype.is_integer:
        key, counter = _key_and_counter(seed)
        low, high = (tf.cast(value, dtype) for value in (minval, maxval))
        return tf.raw_ops.StatelessRandomUniformIntV2(
            shape=shape, key=key, counter=counter, alg=_PHILOX, minval=low, maxval=high
        )
    bits = _integers(shape, seed, tf.uint32) & tf.constant(0x7FFFFF, tf.uint32)
    return tf.cast(bits, dtype) * 2.0**-23 * (maxval - minval) + minval


def indices(available: tf.Tensor, count: int | tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
    """Draws indices, int32 [count], uniformly among the entries of a vector that are above 0.

    If there are none, all entries count. They are those of `tf.random.stateless_categorical` on a
    processor, with equal logits.
    """
    # TensorFlow makes a double of the low 20 bits of an integer and the 32 of the next one.
    words = tf.cast(_integers(tf.stack([count, 2]), seed, tf.uint32), tf.uint64)
    words &= tf.constant([0xFFFFF, 0xFFFFFFFF], tf.uint64)
    units = tf.cast(words, tf.float64) @ tf.constant([[2.0**-20], [2.0**-52]], tf.float64)
    chosen = tf.logical_or(available > 0, tf.logical_not(tf.reduce_any(available > 0)))
    ends = tf.cumsum(tf.cast(chosen, tf.float64))
    return tf.reduce_sum(tf.cast(ends <= units * ends[-1], tf.int32), axis=1)


def _integers(shape: Any, seed: tf.Tensor, dtype: tf.DType) -> tf.Tensor:
    """Integers with random bits."""
    key, counter = _key_and_counter(seed)
    return tf.raw_ops.StatelessRandomUniformFullIntV2(
        shape=tf.convert_to_tensor(shape, tf.int32),
        key=key,
        counter=counter,
        alg=_PHILOX,
        dtype=dtype,
    )


def _key_and_counter(seed: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """The key, uint64 [1], and the counter, uint64 [2], of the draws with a seed.

    As in TensorFlow's kernels, they are themselves drawn, with the seed as the counter.
    """
    key, counter = tf.unstack(
        tf.raw_ops.StatelessRandomUniformFullIntV2(
            shape=[2],
            key=tf.constant([_SEED_KEY], tf.uint64),
            counter=tf.cast(tf.cast(seed, tf.int64), tf.uint64),
            alg=_PHILOX,
            dtype=tf.uint64,
        )
    )
    return key[None], tf.stack([tf.zeros_like(counter), counter])
