"""A trainable temperature for logits."""

import tensorflow as tf

from tff_pcdd.layers.registration import register


@register
class Temperature(tf.keras.layers.Layer):
    """Multiplies its input by one trainable scalar."""

    def __init__(self, initial: float = 1.0, **kwargs):
        """Creates the layer.

        Args:
          initial: initial value of the scalar.
          **kwargs: arguments of the Keras base class; `dtype` is ignored and always float32.
        """
        super().__init__(**{**kwargs, "dtype": "float32"})
        self.initial = initial

    def build(self, input_shape):
        self.scale = self.add_weight(
            name="scale", shape=(), initializer=tf.keras.initializers.Constant(self.initial)
        )
        super().build(input_shape)

    def call(self, inputs):
        return self.scale * inputs

    def get_config(self):
        return {**super().get_config(), "initial": self.initial}
