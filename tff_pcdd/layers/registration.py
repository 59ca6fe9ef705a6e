"""How Keras knows the layers of this package."""

from typing import TypeVar

import tensorflow as tf

L = TypeVar("L", bound=type[tf.keras.layers.Layer])


def register(layer: L) -> L:
    """Registers a class of layers for files of models; Keras then calls it as it is written.

    Otherwise Keras lets AutoGraph translate `call` for each network that is made. The translation
    is needed for Python loops and conditions on tensors, of which these layers have none. It takes
    as long as all else that makes a small network, and the first one imports whatever is imported
    lazily.
    """
    if "call" in vars(layer):
        # What `tf.autograph.experimental.do_not_convert` sets in the function that it returns, from
        # which Keras could not read the arguments of `call`.
        layer.call.autograph_info__ = None
    return tf.keras.utils.register_keras_serializable(package="tff_pcdd")(layer)
