"""EfficientNet-B0.

EfficientNet: Rethinking Model Scaling for Convolutional Neural Networks; M. Tan, Q. Le; ICML 2019;
the network of `tf.keras.applications` without its classifier, for images of at least 32×32 pixels:
global average pooling, d = 1280. FedGELA and FedMR train it on Fed-ISIC2019.

Two things differ from the network in Keras:

- It takes images as `tff_pcdd.data` normalises them. The layers that turn 0…255 into such values
  are left out. The weights that Keras offers for ImageNet expect ImageNet's mean and deviation:
  train with --input_normalization=imagenet from them.
- Dropping of blocks (stochastic depth, 0 to 0.2) is a function of the step's seed.

Batch normalisation is Keras' own, with momentum 0.99 and epsilon 1e-3. From their first values its
moving averages need hundreds of local steps, so that the network in eval mode lags behind at the
start, unless it begins with pretrained weights or has --normalization=group.
"""

from __future__ import annotations

import copy
import functools
from typing import Any

import tensorflow as tf

from tff_pcdd.layers import StatelessDropout
from tff_pcdd.models.registry import number_of_groups, project, register
from tff_pcdd.options import OptionError

_SMALLEST = 32

# Layers of Keras' network that normalise its input.
_INPUT_LAYERS = ("Rescaling", "Normalization")


def _original(input_shape: tuple[int, ...]) -> tf.keras.Model:
    return tf.keras.applications.EfficientNetB0(
        include_top=False, weights=None, input_shape=input_shape, pooling="avg"
    )


@functools.lru_cache
def _config(input_shape: tuple[int, ...], norm: str) -> dict[str, Any]:
    """The network as Keras describes it, with other layers in place of some."""
    # In a graph that is thrown away, so that nothing is drawn and nothing left behind.
    with tf.Graph().as_default():
        original = _original(input_shape)
        config = original.get_config()
    for description in config["layers"]:
        # It would make variables before the network is wired, in another order.
        description.pop("build_config", None)
        kind, name = description["class_name"], description["name"]
        if kind in _INPUT_LAYERS:
            layer = tf.keras.layers.Activation("linear", name=name)
        elif kind == "Dropout":
            settings = description["config"]
            layer = StatelessDropout(settings["rate"], settings["noise_shape"], name=name)
        elif kind == "BatchNormalization" and norm == "group":
            groups = number_of_groups(original.get_layer(name).gamma.shape[0])
            layer = tf.keras.layers.GroupNormalization(groups, epsilon=1e-5, name=name)
        else:
            continue
        description.update(tf.keras.layers.serialize(layer))
    return config


@register("efficientnet_b0")
def efficientnet_b0(
    input_shape: tuple[int, ...], projection_dim: int = 0, norm: str = "batch"
) -> tf.keras.Model:
    """EfficientNet-B0, 4,007,548 trainable parameters with three input channels."""
    if min(input_shape[:2]) < _SMALLEST:
        raise OptionError(
            f"--model=efficientnet_b0: needs images of at least {_SMALLEST}×{_SMALLEST} pixels, "
            f"the data has {input_shape}"
        )
    network = tf.keras.Model.from_config(copy.deepcopy(_config(input_shape, norm)))
    features = project(network.output, projection_dim)
    return tf.keras.Model(network.input, features, name="efficientnet_b0")


def load_weights(model: tf.keras.Model, input_shape: tuple[int, ...], path: str) -> None:
    """Loads a file of weights of Keras' EfficientNetB0(include_top=False) into a backbone.

    Args:
        model: from `efficientnet_b0`, with batch normalisation and without projection.
        input_shape: of its images.
        path: the file.

    Raises:
        OptionError: the file cannot be read, or is of another network.
    """
    original = _original(input_shape)
    try:
        original.load_weights(path)
    except (OSError, ValueError, TypeError, KeyError, AttributeError, tf.errors.OpError) as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else repr(error)
        raise OptionError(
            f"--pretrained_weights={path}: is not a readable file of weights of Keras' "
            f"EfficientNetB0(include_top=False): {reason}"
        ) from error
    for layer in model.layers:
        if layer.weights:
            layer.set_weights(original.get_layer(layer.name).get_weights())
