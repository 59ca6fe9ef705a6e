"""EfficientNet-B0.

EfficientNet: Rethinking Model Scaling for Convolutional Neural Networks; M. Tan, Q. Le; ICML 2019;
the network of `tf.keras.applications` without its classifier, for images of at least 32×32 pixels:
global average pooling, d = 1280. FedGELA and FedMR train it on Fed-ISIC2019.

It differs from the network in Keras in two ways:

- It takes images that `tff_pcdd.data` has normalized, so the layers that normalize pixel values
  from 0 to 255 are left out. Keras' weights for ImageNet expect ImageNet's mean and standard
  deviation: set input_normalization=imagenet when training from them.
- Which blocks are dropped (stochastic depth, rates from 0 to 0.2) is a function of the step's seed.

Batch normalization is Keras' own, with momentum 0.99 and epsilon 1e-3. Its moving averages need
hundreds of local steps to adapt, so evaluation lags behind training at the start, unless training
starts from pretrained weights or uses normalization=group.
"""

from __future__ import annotations

import copy
import dataclasses
import functools
import glob
import io
import os
import stat
import zipfile
from collections.abc import Sequence
from typing import Any

import numpy as np
from etils import epy

from tff_pcdd import files
from tff_pcdd.errors import SettingError, shown
from tff_pcdd.models.backbone import ImageBackbone, NormalizationOption, registry
from tff_pcdd.models.building import each_new, group_normalization, number_of_groups, project
from tff_pcdd.settings import option

with epy.lazy_imports():
    import h5py
    import tensorflow as tf

    from tff_pcdd import layers

# Layers of Keras' network that normalize its input.
_INPUT_LAYERS = ("Rescaling", "Normalization")


# The most that files of weights may hold; those of this network have 16 MB.
_MOST_BYTES = 1_000_000_000
_DEEPEST = 20


@registry.register
@dataclasses.dataclass(frozen=True)
class EfficientNetB0(NormalizationOption, ImageBackbone):
    """EfficientNet-B0, 4,007,548 trainable parameters with three input channels."""

    name = "efficientnet_b0"
    min_side = 32

    pretrained_weights: str | None = option(
        None,
        "File of weights of Keras' EfficientNetB0(include_top=False) to start from; those for "
        "ImageNet expect input_normalization=imagenet.",
        type=str,
        path=True,
    )

    def __post_init__(self):
        super().__post_init__()
        if self.pretrained_weights is not None and self.normalization != "batch":
            reason = "applies only with normalization=batch"
            raise SettingError("pretrained_weights", self.pretrained_weights, reason)

    def network(self, input_shape: tuple[int, ...], projection_dim: int) -> tf.keras.Model:
        policy = tf.keras.mixed_precision.global_policy().name
        config = _network_config(input_shape, self.normalization, policy)
        network = tf.keras.Model.from_config(copy.deepcopy(config))
        features = project(network.output, projection_dim)
        return tf.keras.Model(network.input, features, name=self.name)

    def initial_values(self, input_shape: Sequence[int]) -> list[np.ndarray] | None:
        """The pretrained weights, if there are any; see `Backbone.initial_values`."""
        if self.pretrained_weights is None:
            return None
        _check_file(self.pretrained_weights)
        made: list[tf.Variable] = []
        with each_new(made.append):
            model = self.build(input_shape)
        _load_weights(model, tuple(input_shape), self.pretrained_weights)
        # Outside of graphs, Keras also makes step counters, which are not weights.
        weights = {id(variable) for variable in model.weights}
        return [variable.numpy() for variable in made if id(variable) in weights]


def _keras_network(input_shape: tuple[int, ...]) -> tf.keras.Model:
    return tf.keras.applications.EfficientNetB0(
        include_top=False, weights=None, input_shape=input_shape, pooling="avg"
    )


@functools.lru_cache
def _network_config(
    input_shape: tuple[int, ...], normalization: str, policy: str
) -> dict[str, Any]:
    """The configuration of Keras' network, with some layers replaced.

    The policy is that of the layers; it is an argument because each has a configuration of its own.
    """
    del policy
    # In a temporary graph, so that no initial values are drawn and no memory is kept.
    with tf.Graph().as_default():
        original = _keras_network(input_shape)
        config = original.get_config()
    for description in config["layers"]:
        # With this entry, Keras would make the variables before the layers are connected, in
        # another order.
        description.pop("build_config", None)
        kind, name = description["class_name"], description["name"]
        if kind in _INPUT_LAYERS:
            layer = tf.keras.layers.Activation("linear", name=name)
        elif kind == "Dropout":
            settings = description["config"]
            layer = layers.StatelessDropout(settings["rate"], settings["noise_shape"], name=name)
        elif kind == "GlobalAveragePooling2D" and description is config["layers"][-1]:
            layer = tf.keras.layers.GlobalAveragePooling2D(dtype="float32", name=name)
        elif kind == "BatchNormalization" and normalization == "group":
            groups = number_of_groups(original.get_layer(name).gamma.shape[0])
            layer = group_normalization(groups, name=name)
        else:
            continue
        description.update(tf.keras.layers.serialize(layer))
    return config


def _check_file(path: str) -> None:
    """Refuses what is no file of weights before any network is made, which takes seconds.

    Keras allocates what a file states, and follows the links in it.
    """
    try:
        # TensorFlow's checkpoints are several files, whose names begin with the path.
        is_checkpoint = os.path.exists(f"{path}.index")
        parts = glob.glob(f"{glob.escape(path)}.*") if is_checkpoint else [path]
        for status in map(os.stat, parts):
            if not stat.S_ISREG(status.st_mode):
                raise OSError("not a regular file")
            if status.st_size > _MOST_BYTES:
                raise OSError(f"more than {_MOST_BYTES} bytes")
        if is_checkpoint:
            # A read error would end TensorFlow's reader, and the process, without a word.
            for part in parts:
                files.sha256(part)
        if path.endswith(".keras") and zipfile.is_zipfile(path):
            _check_archive(path)
        elif not is_checkpoint and h5py.is_hdf5(path):
            _check_hdf5(path)
    # The readers of the formats raise exceptions of many kinds.
    except Exception as error:
        raise _refusal(path, error) from error


def _check_archive(path: str) -> None:
    with zipfile.ZipFile(path) as archive:
        if sum(entry.file_size for entry in archive.infolist()) > _MOST_BYTES:
            raise ValueError(f"more than {_MOST_BYTES} bytes")
        for name in archive.namelist():
            if name.endswith(".h5"):
                _check_hdf5(io.BytesIO(archive.read(name)))


def _check_hdf5(file: Any) -> None:
    size = 0

    # What is returned ends the visit; h5py would lose some exceptions.
    def check_link(name: str, link: Any) -> str | None:
        if not isinstance(link, h5py.HardLink):
            return f"{name} is a link"
        # Opening what is nested takes the square of the depth.
        return "groups are nested too deeply" if name.count("/") > _DEEPEST else None

    def check_item(name: str, item: Any) -> str | None:
        nonlocal size
        if not isinstance(item, h5py.Dataset):
            return None
        size += item.nbytes
        if item.external or item.is_virtual or item.dtype.kind not in "fiu":
            return f"{name} is no array of numbers"
        return f"{name} has the shape {item.shape}" if size > _MOST_BYTES else None

    with h5py.File(file, "r") as opened:
        wrong = opened.visititems_links(check_link) or opened.visititems(check_item)
    if wrong:
        raise ValueError(wrong)


def _load_weights(model: tf.keras.Model, input_shape: tuple[int, ...], path: str) -> None:
    """Loads weights of Keras' EfficientNetB0(include_top=False) into a model without projection."""
    original = _keras_network(input_shape)
    try:
        status = original.load_weights(path)
        if status is not None:
            # Of TensorFlow's checkpoints; otherwise, what is missing would stay random.
            status.assert_existing_objects_matched()
        if not all(np.isfinite(weights).all() for weights in original.get_weights()):
            raise ValueError("not all weights are finite")
    except Exception as error:
        raise _refusal(path, error) from error
    for layer in model.layers:
        if layer.weights:
            layer.set_weights(original.get_layer(layer.name).get_weights())


def _refusal(path: str, error: Exception) -> SettingError:
    cause = str(error).strip().splitlines()[0] if str(error).strip() else repr(error)
    reason = (
        "is not a readable file of weights of Keras' EfficientNetB0(include_top=False): "
        f"{shown(cause, 200)}"
    )
    return SettingError("pretrained_weights", path, reason)
