"""Dropout whose draws are data: a function of a seed that enters the computation as a tensor.

Dropout: A Simple Way to Prevent Neural Networks from Overfitting; N. Srivastava, G. Hinton, A.
Krizhevsky, I. Sutskever, R. Salakhutdinov; JMLR 15, 2014. With a noise shape of one value per
sample it is stochastic depth: Deep Networks with Stochastic Depth; G. Huang, Y. Sun, Z. Liu, D.
Sedra, K. Weinberger; ECCV 2016.

Keras' own layer draws from state that TensorFlow keeps, so what it drops depends on everything that
ran before, on the device and on the runtime. Here a training step says which seed is in force:

    with layers.dropout_seed(batch.seed):
        features = backbone(batch.x, training=True)
"""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Iterator

import tensorflow as tf

_REGISTER = tf.keras.utils.register_keras_serializable(package="tff_pcdd")

# Folded into the seed first, which keeps these draws apart from other uses of the same seed.
_SALT = 1 << 21


class _Draws:
    """Seeds for one draw after another, all from one seed."""

    def __init__(self, seed: tf.Tensor):
        self._seed = seed
        self._count = 0

    def next(self) -> tf.Tensor:
        fold_in = tf.random.experimental.stateless_fold_in
        self._count += 1
        return fold_in(fold_in(self._seed, _SALT), self._count)


_draws: contextvars.ContextVar[_Draws | None] = contextvars.ContextVar("draws", default=None)


@contextlib.contextmanager
def dropout_seed(seed: tf.Tensor) -> Iterator[None]:
    """Puts a seed in force for the `StatelessDropout` layers that are called inside.

    Each call of a layer inside draws for itself: the n-th call takes the n-th seed that follows
    from `seed`. While a graph is traced this happens once, and the graph then is a function of the
    seed's value.

    Args:
      seed: int32 [2], as the stateless ops of TensorFlow take it.
    """
    token = _draws.set(_Draws(seed))
    try:
        yield
    finally:
        _draws.reset(token)


@_REGISTER
class StatelessDropout(tf.keras.layers.Layer):
    """Sets inputs to 0 with probability `rate` in training, and scales the others by 1/(1 - rate).

    The seed is the one that `dropout_seed` puts in force. Input and output have the same shape.
    """

    def __init__(self, rate: float, noise_shape=None, **kwargs):
        """Prepares the layer.

        Args:
          rate: share of the inputs that is dropped, at least 0 and below 1.
          noise_shape: shape of the draws, which broadcasts to that of the inputs; `None` at an axis
            stands for the size of the inputs there. By default every input is drawn for itself;
            (None, 1, 1, 1) keeps or drops whole samples.
          **kwargs: arguments of every Keras layer.

        Raises:
          ValueError: for another rate.
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
          RuntimeError: in training, if no seed is in force.
        """
        if not training or not self.rate:
            return tf.identity(inputs)
        draws = _draws.get()
        if draws is None:
            raise RuntimeError(
                f"{self.name}: training needs `with tff_pcdd.layers.dropout_seed(seed):` around it"
            )
        sizes = tf.shape(inputs)
        shape = sizes
        if self.noise_shape is not None:
            shape = [sizes[i] if n is None else n for i, n in enumerate(self.noise_shape)]
        kept = tf.random.stateless_uniform(shape, draws.next()) >= self.rate
        return inputs * tf.cast(kept, inputs.dtype) / (1.0 - self.rate)

    def compute_output_shape(self, input_shape):
        """Shape of the output: that of the input."""
        return input_shape

    def get_config(self):
        """Arguments from which the layer can be made again."""
        return {**super().get_config(), "rate": self.rate, "noise_shape": self.noise_shape}
