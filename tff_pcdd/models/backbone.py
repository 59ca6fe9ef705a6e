"""The base classes of backbones, and the registry of those that are chosen by name."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import warnings
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

import numpy as np
from etils import epy

from tff_pcdd.errors import SettingError
from tff_pcdd.models import precision as precisions
from tff_pcdd.registry import Component, Registry
from tff_pcdd.settings import option

with epy.lazy_imports():
    import tensorflow as tf


@dataclasses.dataclass(frozen=True)
class Backbone(Component):
    """A recipe for a Keras model from inputs to features.

    Subclass `ImageBackbone` or `TextBackbone`, which check the kind of input.

    Attributes:
        has_normalization: whether it has layers that normalize activations; None if unknown.
    """

    has_normalization: ClassVar[bool | None] = None

    def build(
        self,
        input_shape: Sequence[int],
        *,
        projection_dim: int = 0,
        vocabulary_size: int | None = None,
        weights: Sequence[np.ndarray | None] | None = None,
        precision: str = "float32",
    ) -> tf.keras.Model:
        """Builds the model with fresh variables.

        Args:
            input_shape: shape of one input, (height, width, channels) of images or (length,) of
                text.
            projection_dim: width of a linear layer at the end; 0 for none. Some backbones put it in
                the place of their last layer.
            vocabulary_size: number of different ids in text; None for images.
            weights: initial values of the first variables that are made, from `initial_values`;
                the others, such as those of a projection, keep their own initializers.
            precision: "float32", "tf32" or "bfloat16", which the layers compute in. Variables, the
                projection and the features are float32 in either case.

        Returns:
            A Keras model from float32 images or int32 ids [batch, *input_shape] to features,
            float32 [batch, d].

        Raises:
            SettingError: the backbone does not take such inputs, or its output is not of shape
                [batch, d].
        """
        with precisions.scope(precision), _starting_from(weights or ()), _known_learning_phase():
            model = self._make(tuple(input_shape), projection_dim, vocabulary_size)
            model = precisions.with_float32_output(model)
        self._check_features(model)
        return model

    def initial_values(self, input_shape: Sequence[int]) -> Sequence[np.ndarray | None] | None:
        """Reads the values that training starts from, such as pretrained weights.

        Call this outside of graphs, and pass the result to `build`.

        Args:
            input_shape: shape of one input.

        Returns:
            Values of the backbone's variables, without those of a projection, in the order in which
            `build` makes them; None for those that start from their initializers, or if all do.

        Raises:
            SettingError: the values cannot be read or do not fit the network.
        """
        return None

    def _make(
        self, input_shape: tuple[int, ...], projection_dim: int, vocabulary_size: int | None
    ) -> tf.keras.Model:
        """Checks the kind of input and makes the model."""
        raise NotImplementedError

    def _check_features(self, model: tf.keras.Model) -> None:
        """Refuses models whose output cannot serve as features."""
        shape: Any = model.output_shape
        reason = None
        if len(shape) != 2 or not isinstance(shape[-1], int):
            reason = (
                f"its output must have shape [batch, d] with a fixed d, but has shape {shape}; "
                "tf.keras.layers.GlobalAveragePooling2D or Flatten makes features of images"
            )
        elif model.output.dtype != tf.float32:
            reason = f"must compute in float32, but its output is {model.output.dtype.name}"
        elif other := [w for w in model.weights if w.dtype.is_floating and w.dtype != tf.float32]:
            reason = f"must compute in float32, but {other[0].name} is {other[0].dtype.name}"
        elif other := [w for w in model.weights if not w.dtype.is_floating]:
            reason = (
                "all of its variables must be floats, which can be averaged, but "
                f"{other[0].name} is {other[0].dtype.name}"
            )
        elif name := _unused(model):
            reason = (
                f"{name} would have no effect: the method has the loss, and the clients' optimizer "
                "the step; client_weight_decay is a penalty on the weights"
            )
        elif _ends_with_softmax(model):
            reason = (
                "its output must be features, but its last layer applies softmax; leave out the "
                "classifier, which the method adds"
            )
        if reason is not None:
            raise SettingError(registry.setting, self.name, reason)


def _unused(model: tf.keras.Model) -> str | None:
    """A penalty or a constraint of a layer; None if there is none."""
    for layer in model.submodules:
        for name, value in vars(layer).items():
            is_setting = name.endswith(("_regularizer", "_constraint")) and name[0] != "_"
            if is_setting and value is not None:
                return f"{name} of the layer {layer.name!r}"
    return "a loss of a layer (add_loss)" if model.losses else None


def _ends_with_softmax(layer: tf.keras.layers.Layer) -> bool:
    """Whether the last layer of a model, or of a model inside it, applies softmax."""
    # The layers of a subclassed model are in no particular order; it has no outputs of its own.
    while getattr(layer, "outputs", None) and getattr(layer, "layers", None):
        layer = [x for x in layer.layers if x.name != precisions.CAST][-1]
    softmax = tf.keras.activations.softmax
    return isinstance(layer, tf.keras.layers.Softmax) or (
        getattr(layer, "activation", None) is softmax
    )


registry: Registry[Backbone] = Registry("model", "tff_pcdd.models")


class ImageBackbone(Backbone):
    """A backbone for images; subclasses define `network`.

    Attributes:
        min_side: the smallest height and width, in pixels, that the network can process.
        accepts_vectors: whether inputs may also be vectors, of shape (length,).
    """

    min_side: ClassVar[int] = 1
    accepts_vectors: ClassVar[bool] = False

    def network(self, input_shape: tuple[int, ...], projection_dim: int) -> tf.keras.Model:
        """Makes the Keras model.

        Args:
            input_shape: (height, width, channels).
            projection_dim: width of a linear layer at the end, which `project` appends; 0 for none.

        Returns:
            A Keras model from [batch, *input_shape] to features [batch, d].
        """
        raise NotImplementedError

    def _make(
        self, input_shape: tuple[int, ...], projection_dim: int, vocabulary_size: int | None
    ) -> tf.keras.Model:
        is_text = vocabulary_size is not None
        if is_text or (len(input_shape) == 1 and not self.accepts_vectors):
            shape, fitting = _described(input_shape, is_text=is_text)
            reason = f"needs images as input; {shape} need {fitting}"
            raise SettingError(registry.setting, self.name, reason)
        side = self.min_side
        if side > 1 and (len(input_shape) != 3 or min(input_shape[:2]) < side):
            reason = f"needs images of at least {side}×{side} pixels; these are {input_shape}"
            raise SettingError(registry.setting, self.name, reason)
        return self.network(input_shape, projection_dim)


class TextBackbone(Backbone):
    """A backbone for text; subclasses define `network`."""

    def network(
        self, input_shape: tuple[int, ...], projection_dim: int, vocabulary_size: int
    ) -> tf.keras.Model:
        """Makes the Keras model.

        Args:
            input_shape: (length,).
            projection_dim: width of a linear layer at the end, which `project` appends; 0 for none.
            vocabulary_size: number of different ids.

        Returns:
            A Keras model from int32 ids [batch, length] to features [batch, d].
        """
        raise NotImplementedError

    def _make(
        self, input_shape: tuple[int, ...], projection_dim: int, vocabulary_size: int | None
    ) -> tf.keras.Model:
        if vocabulary_size is None:
            shape, fitting = _described(input_shape, is_text=False)
            reason = f"needs text; the data are {shape}, which need {fitting}"
            raise SettingError(registry.setting, self.name, reason)
        return self.network(input_shape, projection_dim, vocabulary_size)


@dataclasses.dataclass(frozen=True)
class NormalizationOption:
    """Mixin for backbones with normalization layers."""

    has_normalization: ClassVar[bool | None] = True

    normalization: str = option(
        "batch",
        "Normalization layers: batch, whose moving statistics are averaged with the weights, or "
        "group, which has no moving statistics.",
        choices=("batch", "group"),
    )


@contextlib.contextmanager
def _known_learning_phase() -> Iterator[None]:
    """Makes models faster in graphs; calls of a model still say whether it is being trained.

    Otherwise each normalization layer traces both branches of a condition on Keras' learning phase.
    """
    with warnings.catch_warnings():
        # The function is deprecated since 2020, and part of every TensorFlow with this Keras.
        warnings.filterwarnings("ignore", ".*learning_phase_scope")
        with tf.keras.backend.learning_phase_scope(0):
            yield


@contextlib.contextmanager
def _starting_from(values: Sequence[np.ndarray | None]) -> Iterator[None]:
    """The first variables made inside start with these values, in the order given.

    The values replace the variables' initializers. Therefore, this also works in a graph, and a
    variable creator scope around this one may still override them (`federated.initialization` does
    so for networks whose variables are assigned later).
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


def _described(input_shape: tuple[int, ...], *, is_text: bool) -> tuple[str, str]:
    """Inputs in words, and the names of the backbones that take them."""
    base = TextBackbone if is_text else ImageBackbone
    fitting = {n: cls for n, cls in registry.classes().items() if issubclass(cls, base)}
    if is_text:
        shape = f"texts of {input_shape[0]} characters"
    elif len(input_shape) > 1:
        shape = f"images of {'×'.join(map(str, input_shape))}"
    else:
        shape = f"vectors of {input_shape[0]} numbers"
        fitting = {n: cls for n, cls in fitting.items() if getattr(cls, "accepts_vectors", False)}
    return shape, " or ".join(fitting)
