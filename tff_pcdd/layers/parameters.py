"""Tensors that are kept and trained like weights, but belong to no computation of a network."""

from collections.abc import Sequence

import tensorflow as tf

from tff_pcdd.layers.registration import register


@register
class Parameters(tf.keras.layers.Layer):
    """Holds trainable tensors; inputs pass through unchanged.

    Example: `Parameters([(3, 2), (2,)], 1.0).weights` are two tensors of ones once it is built.
    """

    def __init__(self, shapes: Sequence[Sequence[int]], initial: float = 0.0, **kwargs):
        """Creates the layer.

        Args:
          shapes: the shape of each tensor; `()` for a scalar.
          initial: initial value of all entries.
          **kwargs: arguments of the Keras base class; `dtype` is ignored and always float32.
        """
        super().__init__(**{**kwargs, "dtype": "float32"})
        self.shapes = [tuple(shape) for shape in shapes]
        self.initial = initial

    def build(self, input_shape):
        initializer = tf.keras.initializers.Constant(self.initial)
        self.tensors = [
            self.add_weight(name=f"tensor_{number}", shape=shape, initializer=initializer)
            for number, shape in enumerate(self.shapes)
        ]
        super().build(input_shape)

    def call(self, inputs):
        return inputs

    def get_config(self):
        return {**super().get_config(), "shapes": self.shapes, "initial": self.initial}
