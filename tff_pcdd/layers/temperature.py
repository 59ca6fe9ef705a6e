"""A trained scale of logits."""

import tensorflow as tf


@tf.keras.utils.register_keras_serializable(package="tff_pcdd")
class Temperature(tf.keras.layers.Layer):
    """Multiplies its input by one trained scalar."""

    def __init__(self, initial: float = 1.0, **kwargs):
        """Prepares the layer.

        Args:
          initial: the scalar's first value.
          **kwargs: arguments of every Keras layer; `dtype` is ignored, it is float32.
        """
        super().__init__(**{**kwargs, "dtype": "float32"})
        self.initial = initial

    def build(self, input_shape):
        """Creates the scalar."""
        self.scale = self.add_weight(
            name="scale", shape=(), initializer=tf.keras.initializers.Constant(self.initial)
        )
        super().build(input_shape)

    def call(self, inputs):
        """Scales `inputs`, of any shape."""
        return self.scale * inputs

    def get_config(self):
        """Arguments from which the layer can be made again."""
        return {**super().get_config(), "initial": self.initial}
