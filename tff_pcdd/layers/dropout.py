"""Dropout that is a pure function of its input and of a seed, which is passed as a tensor.

Dropout: A Simple Way to Prevent Neural Networks from Overfitting; N. Srivastava, G. Hinton, A.
Krizhevsky, I. Sutskever, R. Salakhutdinov; JMLR 15, 2014. With one draw per sample it becomes
stochastic depth: Deep Networks with Stochastic Depth; G. Huang, Y. Sun, Z. Liu, D. Sedra, K.
Weinberger; ECCV 2016.

The random state of Keras' own layer belongs to TensorFlow, so its draws depend on everything that
ran before, on the device and on the runtime. Here the training step sets the seed:

    with layers.dropout_seed(batch.seed):
        features = backbone(batch.x, training=True)
"""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Iterator

import tensorflow as tf

from tff_pcdd import draws
from tff_pcdd.layers.registration import register

# Folded into the seed first, so that other uses of the same seed make independent draws.
_SALT = 1 << 21


class _Draws:
    """A sequence of seeds derived from one seed."""

    def __init__(self, seed: tf.Tensor):
        self._seed = seed
        self._count = 0

    def next(self) -> tf.Tensor:
        self._count += 1
        return draws.fold_in(draws.fold_in(self._seed, _SALT), self._count)


_draws: contextvars.ContextVar[_Draws | None] = contextvars.ContextVar("draws", default=None)


@contextlib.contextmanager
def dropout_seed(seed: tf.Tensor) -> Iterator[None]:
    """Sets the seed of all `StatelessDropout` layers that are called in the `with` block.

    Every call makes its own draws: the n-th call uses the n-th seed derived from `seed`. When a
    graph is traced, the calls are numbered once, so the graph is a function of the seed's value.

    Args:
      seed: int32 [2], the format of TensorFlow's stateless ops.
    """
    token = _draws.set(_Draws(seed))
    try:
        yield
    finally:
        _draws.reset(token)


@register
class StatelessDropout(tf.keras.layers.Layer):
    """Sets inputs to 0 with probability `rate` in training, and scales the others by 1/(1 - rate).

    The seed is set by `dropout_seed`. Input and output have the same shape.
    """

    def __init__(self, rate: float, noise_shape=None, **kwargs):
        """Creates the layer.

        Args:
          rate: probability that an input is dropped, at least 0 and below 1.
          noise_shape: shape of the draws, which must broadcast to the shape of the inputs; `None`
            at an axis means the size of the inputs along that axis. By default every entry has its
            own draw; (None, 1, 1, 1) keeps or drops whole samples.
          **kwargs: arguments of the Keras base class.

        Raises:
          ValueError: if `rate` is negative, or 1 or more.
        """
        if not 0 <= rate < 1:
            raise ValueError(f"rate must be at least 0 and below 1, got {rate}")
        super().__init__(**kwargs)
        self.rate = rate
        self.noise_shape = None if noise_shape is None else tuple(noise_shape)
        self.supports_masking = True

    def call(self, inputs, training=None):
        """Drops inputs if `training` is true.

        Args:
          inputs: float tensor.
          training: Python boolean; `None` means inference.

        Returns:
          Tensor of the shape and type of `inputs`.

        Raises:
          RuntimeError: in training, if no seed is set.
        """
        if not training or not self.rate:
            return tf.identity(inputs)
        seeds = _draws.get()
        if seeds is None:
            raise RuntimeError(
                f"{self.name}: training must run inside `with tff_pcdd.layers.dropout_seed(seed):`"
            )
        sizes = tf.shape(inputs)
        shape = sizes
        if self.noise_shape is not None:
            shape = [sizes[i] if n is None else n for i, n in enumerate(self.noise_shape)]
        kept = draws.uniform(shape, seeds.next()) >= self.rate
        return inputs * tf.cast(kept, inputs.dtype) / (1.0 - self.rate)

    def compute_output_shape(self, input_shape):
        return input_shape

    def get_config(self):
        return {**super().get_config(), "rate": self.rate, "noise_shape": self.noise_shape}
