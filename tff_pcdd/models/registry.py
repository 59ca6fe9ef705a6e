"""Names of the backbones, and what is put behind them."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence

from etils import epy

from tff_pcdd.options import OptionError

with epy.lazy_imports():
    import tensorflow as tf

# Which module makes which backbone, so that the names are known without importing TensorFlow.
_MODULES = {
    "simple_cnn": "tff_pcdd.models.simple_cnn",
    "resnet18": "tff_pcdd.models.resnet",
    "resnet34": "tff_pcdd.models.resnet",
}
_BUILDERS: dict[str, Callable] = {}


def register(name: str):
    """Decorator that makes a function known by a name.

    The function takes (input_shape, projection_dim) and returns a Keras model; `project` does the
    projection for it.
    """

    def decorate(function: Callable) -> Callable:
        _BUILDERS[name] = function
        return function

    return decorate


def names() -> list[str]:
    """The names of all backbones, sorted."""
    return sorted({*_MODULES, *_BUILDERS})


def build(name: str, input_shape: Sequence[int], *, projection_dim: int = 0) -> tf.keras.Model:
    """Makes a backbone with fresh variables.

    Args:
        name: one of `names()`.
        input_shape: shape of one model input, [height, width, channels].
        projection_dim: width of a linear layer at the end, 0 for none (FedGELA's networks have one
            of 84 or 512).

    Returns:
        A Keras model from float32 [batch, *input_shape] to float32 [batch, d].

    Raises:
        OptionError: the name is unknown, or the model cannot take such inputs.
    """
    if name not in names():
        raise OptionError(f"--model={name}: choose one of {', '.join(names())}")
    if name not in _BUILDERS:
        importlib.import_module(_MODULES[name])
    return _BUILDERS[name](tuple(input_shape), projection_dim)


def project(features: tf.Tensor, projection_dim: int) -> tf.Tensor:
    """Puts a linear layer of that width behind features, or nothing for width 0."""
    if not projection_dim:
        return features
    return dense(projection_dim, name="projection")(features)


def dense(units: int, **options) -> tf.keras.layers.Dense:
    """A fully connected layer with weights uniform in ±1/sqrt(fan_in), as the papers' networks."""
    uniform = tf.keras.initializers.VarianceScaling(1 / 3, "fan_in", "uniform")
    return tf.keras.layers.Dense(units, kernel_initializer=uniform, **options)
