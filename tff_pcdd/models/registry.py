"""Names of the backbones, and what is put behind them."""

from __future__ import annotations

import contextlib
import functools
import importlib
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from etils import epy

from tff_pcdd.options import OptionError

with epy.lazy_imports():
    import tensorflow as tf

    from tff_pcdd import layers

# Which module makes which backbone, so that the names are known without importing TensorFlow.
_MODULES = {
    "efficientnet_b0": "tff_pcdd.models.efficientnet",
    "lstm": "tff_pcdd.models.lstm",
    "mlp": "tff_pcdd.models.mlp",
    "resnet18": "tff_pcdd.models.resnet",
    "resnet34": "tff_pcdd.models.resnet",
    "resnet50": "tff_pcdd.models.resnet",
    "resnet8": "tff_pcdd.models.resnet",
    "simple_cnn": "tff_pcdd.models.simple_cnn",
    "wide_resnet": "tff_pcdd.models.wide_resnet",
}

# Backbones with normalisation layers, whose kind can be chosen.
NORMALIZED = ("efficientnet_b0", "resnet18", "resnet34", "resnet50", "resnet8", "wide_resnet")
NORMS = ("batch", "group")

# Backbones that can start from a file of weights.
PRETRAINED = ("efficientnet_b0",)

_LARGEST_NUMBER_OF_GROUPS = 32


class _Builder(NamedTuple):
    function: Callable
    takes: str


_BUILDERS: dict[str, _Builder] = {}


def register(name: str, takes: str = "image"):
    """Decorator that makes a function known by a name.

    The function takes (input_shape, projection_dim) and returns a Keras model; `project` does the
    projection for it.

    Args:
        name: of the backbone.
        takes: "image", or "text" for a function that also takes `vocabulary_size`.
    """

    def decorate(function: Callable) -> Callable:
        _BUILDERS[name] = _Builder(function, takes)
        return function

    return decorate


def names() -> list[str]:
    """The names of all backbones, sorted."""
    return sorted({*_MODULES, *_BUILDERS})


def build(
    name: str,
    input_shape: Sequence[int],
    *,
    projection_dim: int = 0,
    vocabulary_size: int | None = None,
    norm: str | None = None,
    weights: Sequence[np.ndarray] | None = None,
) -> tf.keras.Model:
    """Makes a backbone with fresh variables.

    Args:
        name: one of `names()`.
        input_shape: shape of one model input: (height, width, channels), or (length,) of text.
        projection_dim: width of a linear layer at the end, 0 for none (FedGELA's networks have one
            of 84 or 512).
        vocabulary_size: of text, the number of ids; None for images.
        norm: "batch" or "group", the normalisation layers of a backbone in `NORMALIZED`; None for
            the backbone's own.
        weights: first values of the variables, from `read_weights`; a projection has its own.

    Returns:
        A Keras model from float32 images or int32 ids [batch, *input_shape] to features, float32
        [batch, d].

    Raises:
        OptionError: the name is unknown, or the model cannot take such inputs or have such layers.
    """
    builder = _builder(name)
    shape = tuple(input_shape)
    is_text = vocabulary_size is not None or len(shape) == 1
    options = {}
    if builder.takes == "text":
        if vocabulary_size is None:
            raise OptionError(
                f"--model={name}: needs text, the data are images of {'×'.join(map(str, shape))}"
            )
        options["vocabulary_size"] = vocabulary_size
    elif is_text:
        raise OptionError(
            f"--model={name}: needs images as input, the data are text of {shape[0]} characters"
        )
    if norm is not None:
        if name not in NORMALIZED:
            raise OptionError(
                f"--normalization={norm}: applies only with --model={'|'.join(NORMALIZED)}"
            )
        if norm not in NORMS:
            raise OptionError(f"--normalization={norm}: choose one of {', '.join(NORMS)}")
        options["norm"] = norm
    with _starting_from(weights or ()):
        return builder.function(shape, projection_dim, **options)


def read_weights(name: str, input_shape: Sequence[int], path: str) -> list[np.ndarray]:
    """Reads a file of weights for `build`; to be called outside of graphs.

    Args:
        name: one of `PRETRAINED`.
        input_shape: (height, width, channels) of the images.
        path: a Keras file of weights.

    Returns:
        Values of the backbone's variables, in the order in which they are made.

    Raises:
        OptionError: the file cannot be read or does not fit the network.
    """
    if name not in PRETRAINED:
        raise OptionError(
            f"--pretrained_weights={path}: applies only with --model={'|'.join(PRETRAINED)}"
        )
    made: list[tf.Variable] = []

    def record(next_creator, **kwargs):
        made.append(next_creator(**kwargs))
        return made[-1]

    with tf.variable_creator_scope(record):
        model = build(name, input_shape)
    importlib.import_module(_MODULES[name]).load_weights(model, tuple(input_shape), path)
    # Keras makes variables of its own too, outside of graphs only: counters of steps.
    weights = {id(variable) for variable in model.weights}
    return [variable.numpy() for variable in made if id(variable) in weights]


def _builder(name: str) -> _Builder:
    if name not in names():
        raise OptionError(f"--model={name}: choose one of {', '.join(names())}")
    if name not in _BUILDERS:
        importlib.import_module(_MODULES[name])
    return _BUILDERS[name]


@contextlib.contextmanager
def _starting_from(values: Sequence[np.ndarray]):
    """The first variables made inside start with these values, one after the other.

    They do so by their initialisers, so it holds for networks in a graph, and a scope around this
    one may still have the last word (as for networks that are about to be assigned).
    """
    remaining = iter(values)

    def create(next_creator, **kwargs):
        value = next(remaining, None)
        if value is not None:
            kwargs["initial_value"] = functools.partial(
                tf.constant_initializer(value), value.shape, dtype=value.dtype
            )
        return next_creator(**kwargs)

    with tf.variable_creator_scope(create):
        yield


def project(features: tf.Tensor, projection_dim: int) -> tf.Tensor:
    """Puts a linear layer of that width behind features, or nothing for width 0."""
    if not projection_dim:
        return features
    return dense(projection_dim, name="projection")(features)


def dense(units: int, **options) -> tf.keras.layers.Dense:
    """A fully connected layer with weights uniform in ±1/sqrt(fan_in), as the papers' networks."""
    uniform = tf.keras.initializers.VarianceScaling(1 / 3, "fan_in", "uniform")
    return tf.keras.layers.Dense(units, kernel_initializer=uniform, **options)


def normalize(x: tf.Tensor, norm: str = "batch", *, momentum: float = 0.9) -> tf.Tensor:
    """Puts batch or group normalisation behind a Keras tensor.

    Args:
        x: Keras tensor [batch, height, width, channels].
        norm: "batch" or "group".
        momentum: of batch normalisation, the share of the old moving average that is kept.

    Returns:
        Keras tensor of the same shape.
    """
    if norm == "group":
        groups = number_of_groups(x.shape[-1])
        return tf.keras.layers.GroupNormalization(groups, epsilon=1e-5)(x)
    return layers.BatchNormalization(momentum=momentum)(x)


def number_of_groups(channels: int) -> int:
    """Groups of group normalisation: 32, or the next smaller divisor of the channels.

    Group Normalization; Y. Wu, K. He; ECCV 2018.
    """
    return max(n for n in range(1, _LARGEST_NUMBER_OF_GROUPS + 1) if channels % n == 0)
