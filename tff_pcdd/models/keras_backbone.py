"""A backbone around a function that makes a Keras model."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from etils import epy

from tff_pcdd.errors import SettingError
from tff_pcdd.models.backbone import Backbone, registry
from tff_pcdd.models.building import each_new, project
from tff_pcdd.models.precision import with_float32_output

with epy.lazy_imports():
    import tensorflow as tf


@dataclasses.dataclass(frozen=True)
class KerasBackbone(Backbone):
    """A Keras model of your own as a backbone, without a registered class.

    It is for use from Python: other processes cannot find it by its name.

    Attributes:
        function: makes a new model, with new variables, each time it is called with the shape of
            one input. The model maps a batch of inputs to features [batch, d]. Training starts from
            the weights that the function sets, such as those of a file, and draws the others.
        name: its name in results.

    Raises:
        SettingError: the name is that of a registered backbone. `build` raises it if the function
            does not make a usable model.

    Example:
        >>> def features(input_shape):
        ...     return tf.keras.Sequential(
        ...         [
        ...             tf.keras.Input(input_shape),
        ...             tf.keras.layers.Flatten(),
        ...             tf.keras.layers.Dense(32, "relu"),
        ...         ]
        ...     )
        >>> KerasBackbone(features, name="one_layer").build((8, 8, 1)).output_shape
        (None, 32)
    """

    function: Callable[[tuple[int, ...]], tf.keras.Model]
    # The names of other components are class attributes.
    name: str = dataclasses.field(default="keras", kw_only=True)  # type: ignore[misc]

    def __post_init__(self):
        super().__post_init__()
        if not callable(self.function):
            raise self._error(f"needs a function that makes a model, not {self.function!r}")
        if self.name in registry.names():
            raise self._error("is the name of a registered backbone; choose another name")

    def initial_values(self, input_shape: Sequence[int]) -> list[np.ndarray | None] | None:
        """The values that the function has set, and None for other variables."""
        made = []
        with each_new(lambda variable: made.append((variable, variable.numpy()))):
            self.function(tuple(input_shape))
        values = [
            None if np.array_equal(value := variable.numpy(), first) else value
            for variable, first in made
        ]
        return None if all(value is None for value in values) else values

    def _make(
        self, input_shape: tuple[int, ...], projection_dim: int, vocabulary_size: int | None
    ) -> tf.keras.Model:
        made = set()
        with each_new(lambda variable: made.add(id(variable.handle))):
            model = self.function(input_shape)
            if not isinstance(model, tf.keras.Model):
                raise self._error(f"its function must return a tf.keras.Model, not {model!r}")
            if not model.inputs or not model.outputs:
                # A subclassed model, or a Sequential model without an input shape.
                inputs = tf.keras.Input(input_shape, dtype="int32" if vocabulary_size else None)
                model = tf.keras.Model(inputs, model(inputs), name=model.name)
        # In bfloat16, a layer wraps its variables, whose handles stay the same.
        if not all(id(variable.handle) in made for variable in model.weights):
            raise self._error("its function must make new layers each time it is called")
        self._check_input(model, input_shape)
        model = with_float32_output(model)
        self._check_features(model)
        if projection_dim:
            features = project(model.output, projection_dim)
            model = tf.keras.Model(model.input, features, name=model.name)
        return model

    def _check_input(self, model: tf.keras.Model, input_shape: tuple[int, ...]) -> None:
        shape: Any = model.input_shape
        if len(model.inputs) != 1 or not tf.TensorShape(input_shape).is_compatible_with(shape[1:]):
            reason = f"its input must have shape {(None, *input_shape)}, but has shape {shape}"
            raise self._error(reason)

    def _error(self, reason: str) -> SettingError:
        return SettingError(registry.setting, self.name, reason)
