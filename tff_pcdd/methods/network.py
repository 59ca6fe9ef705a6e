"""The network that a method trains, and the pieces most methods build it from."""

from __future__ import annotations

import copy
import enum
import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from etils import epy

with epy.lazy_imports():
    import tensorflow as tf

if TYPE_CHECKING:
    from tff_pcdd.methods.contract import Method
    from tff_pcdd.methods.records import TaskSpec


class Placement(enum.Enum):
    """Where a variable lives between rounds."""

    SHARED = "shared"  # broadcast by the server, trained by clients, averaged
    PERSONAL = "personal"  # kept by the client from round to round, never uploaded
    # Kept by the client like a personal variable, and uploaded as well: the cohort's mean completes
    # the global model, and is the initial value for clients that have never trained. It does not
    # replace the values that other clients keep.
    MIRRORED = "mirrored"
    FIXED = "fixed"  # the same everywhere, never trained, never averaged
    SCRATCH = "scratch"  # temporary, filled by `Method.begin`; neither kept nor sent


class Variables(NamedTuple):
    """Variables of one placement.

    Attributes:
        trainable: those that an optimizer moves.
        statistics: those that layers update, such as moving averages.
    """

    trainable: list[tf.Variable]
    statistics: list[tf.Variable]

    @property
    def all(self) -> list[tf.Variable]:
        return [*self.trainable, *self.statistics]


class Network:
    """The Keras pieces that a method trains, with their variables sorted by placement.

    Pieces are accessed by name: `net["backbone"](x, training=True)`.

    Args:
        parts: the pieces by name. Those that are not built yet are built for features [batch, d].
        method: gives each variable its placement.
        task: what is learned.

    Attributes:
        method: as given.
        shared: variables that are broadcast and averaged.
        mirrored: variables that the client keeps and whose mean completes the global model.
        personal: variables that only the client has.
        fixed: variables that never change.
    """

    def __init__(
        self, parts: Mapping[str, tf.keras.layers.Layer], method: Method, task: TaskSpec
    ) -> None:
        self._parts = self._built = dict(parts)
        self.method, self._task = method, task
        self._views: dict[tuple[str, ...], Network] = {}
        self.shared = Variables([], [])
        self.personal = Variables([], [])
        self.mirrored = Variables([], [])
        self.fixed: list[tf.Variable] = []
        self._variances: set[Any] = set()
        for name, part in self._parts.items():
            build(part, task)
            trainable = {id(variable) for variable in part.trainable_weights}
            for variable, owner in owned_weights(part):
                if is_batch_norm(owner) and variable is owner.moving_variance:
                    self._variances.add(variable.ref())
                placement = _placement(method, task, name, owner)
                self._place(variable, placement, id(variable) in trainable)
        self._known = {variable.ref() for variable in self.variables}

    def _place(self, variable: tf.Variable, placement: Placement, trainable: bool) -> None:
        if placement is Placement.FIXED:
            self.fixed.append(variable)
        elif placement is not Placement.SCRATCH:
            group = getattr(self, placement.value)
            (group.trainable if trainable else group.statistics).append(variable)

    def __getitem__(self, part: str) -> tf.keras.layers.Layer:
        return self._parts[part]

    @functools.cached_property
    def autograph(self) -> bool:
        """Whether AutoGraph has to translate functions that call the method or the pieces.

        The translation takes most of the tracing time. It is needed for Python loops and conditions
        on tensors. This package has none, but methods and layers from elsewhere may have some,
        unless `layers.registration` says that a layer is called as it is written.
        """
        layers = [part for part in self._parts.values() if isinstance(part, tf.Module)]
        nested = [module for layer in layers for module in layer.submodules]
        return not all(map(_has_no_python_control_flow, [*self.method.code, *layers, *nested]))

    @property
    def parts(self) -> Mapping[str, tf.keras.layers.Layer]:
        """The pieces by name."""
        return self._parts

    def replacing(self, **parts: Callable[..., Any]) -> Network:
        """The same network, in which other functions replace some of the pieces."""
        view = copy.copy(self)
        view._parts = {**self._parts, **parts}
        return view

    def view(self, method: Method, pieces: Mapping[str, str]) -> Network:
        """The network of a method that is part of this one; its variables are the same objects.

        Args:
            method: the method.
            pieces: for each of its pieces, the name that the piece has here.
        """
        key = (*pieces, *pieces.values())
        if key not in self._views:
            parts = {name: self._built[own] for name, own in pieces.items()}
            self._views[key] = Network(parts, method, self._task)
        replaced = {
            name: self._parts[own]
            for name, own in pieces.items()
            if self._parts[own] is not self._built[own]
        }
        return self._views[key].replacing(**replaced) if replaced else self._views[key]

    def copies(self, prefix: str) -> list[tuple[tf.Variable, tf.Variable]]:
        """Pairs (variable of piece `name`, the same variable of piece `<prefix><name>`)."""
        return [
            pair
            for name in self._parts
            if f"{prefix}{name}" in self._parts
            for pair in zip(
                self._parts[name].weights, self._parts[f"{prefix}{name}"].weights, strict=True
            )
        ]

    def refresh(self, prefix: str) -> None:
        """Assigns the values of pieces to their copies `<prefix><name>`."""
        for original, copied in self.copies(prefix):
            copied.assign(original)

    def initial_personal(self, prefix: str) -> list[tf.Tensor]:
        """Initial values of the personal variables; copies `<prefix><name>` equal their originals.

        Pieces that are built twice have different random values.
        """
        originals = {copied.ref(): original for original, copied in self.copies(prefix)}
        return [tf.identity(originals.get(own.ref(), own)) for own in self.personal.all]

    def is_variance(self, variable: tf.Variable) -> bool:
        """Whether a variable is the moving variance of a batch normalization, so never negative."""
        return variable.ref() in self._variances

    @property
    def variables(self) -> list[tf.Variable]:
        """All variables of every placement, piece by piece."""
        return [variable for part in self._parts.values() for variable in part.variables]

    def check_variables(self) -> None:
        """Refuses pieces that have made variables since: nothing would train or keep them."""
        for name, part in self._built.items():
            if new := [own.name for own in part.variables if own.ref() not in self._known]:
                found = f"the piece {name!r} makes the variable {new[0]!r} when it is called"
                reason = "make variables in its build, and build the layers inside it there"
                raise TypeError(f"{self.method.name}: {found}; {reason}")

    @property
    def kept(self) -> list[tf.Variable]:
        """All variables that the client keeps between rounds."""
        return [*self.personal.all, *self.mirrored.all]

    @property
    def common(self) -> list[tf.Variable]:
        """The variables of the global model that local training may move."""
        return [*self.shared.trainable, *self.mirrored.trainable]

    @property
    def trainable(self) -> list[tf.Variable]:
        """All variables that local training may move."""
        return [*self.common, *self.personal.trainable]


def build(part: tf.keras.layers.Layer, task: TaskSpec) -> None:
    """Makes the variables of a piece, for features [batch, d], unless it has been built."""
    if not part.built:
        part.build((None, task.feature_dim))
        # Layers from elsewhere may leave this to Keras, which would make others in the first call.
        part.built = True


def _placement(
    method: Method, task: TaskSpec, part: str, layer: tf.keras.layers.Layer
) -> Placement:
    """The method's placement of a layer; mirrored if clients keep their batch normalization."""
    placement = method.placement(part, layer)
    if not isinstance(placement, Placement):
        reason = "has to return one of methods.Placement, such as Placement.SHARED"
        raise TypeError(f"{method.name}: placement {reason}, not {placement!r} for {part!r}")
    if task.personal_norms and placement is Placement.SHARED and is_batch_norm(layer):
        return Placement.MIRRORED
    return placement


def is_batch_norm(layer: tf.keras.layers.Layer) -> bool:
    """Whether a layer is a batch normalization, recognized by its type and not by its name."""
    # The base of Keras' classes, which it does not export: another one computes over replicas.
    return isinstance(layer, tf.keras.layers.BatchNormalization.__base__)


def _has_no_python_control_flow(owner: Any) -> bool:
    cls = type(owner)
    if hasattr(vars(cls).get("call"), "autograph_info__"):
        return True
    # A Lambda layer of Keras calls a function from elsewhere.
    return cls.__module__.startswith(("tff_pcdd.", "tf_keras.")) and not isinstance(
        owner, tf.keras.layers.Lambda
    )


def owned_weights(
    part: tf.keras.layers.Layer,
) -> Iterable[tuple[tf.Variable, tf.keras.layers.Layer]]:
    """Pairs of a weight and the innermost layer that owns it, in the order of `part.weights`."""
    owner: dict[int, tf.keras.layers.Layer] = {}
    for layer in (part, *part.submodules):
        if not isinstance(layer, tf.keras.layers.Layer):
            continue
        for weight in layer.weights:
            known = owner.get(id(weight))
            if known is None or _is_inside(layer, known):
                owner[id(weight)] = layer
    return [(weight, owner[id(weight)]) for weight in part.weights]


def _is_inside(layer: tf.keras.layers.Layer, outer: tf.keras.layers.Layer) -> bool:
    """Whether of two layers that own a weight, the first one is nearer to it."""
    own, others = len(layer.weights), len(outer.weights)
    # A layer may add nothing to the weights of the only one inside it.
    return own < others or (own == others and any(layer is inner for inner in outer.submodules))


def renamed(
    parts: Mapping[str, tf.keras.layers.Layer], prefix: str
) -> dict[str, tf.keras.layers.Layer]:
    """Pieces under the names `<prefix><name>`, which make them copies of the pieces `<name>`."""
    return {f"{prefix}{name}": part for name, part in parts.items()}


def assign(variables: Sequence[tf.Variable], values: Sequence[tf.Tensor]) -> None:
    """Sets every variable to its value."""
    for variable, value in zip(variables, values, strict=True):
        variable.assign(value)


def read(variables: Sequence[tf.Variable]) -> list[tf.Tensor]:
    """The values of variables, as tensors that later assignments do not change."""
    return [tf.identity(variable) for variable in variables]


def cross_entropy(labels: tf.Tensor, logits: tf.Tensor) -> tf.Tensor:
    """Mean cross-entropy of integer labels [batch] and logits [batch, C]."""
    return tf.reduce_mean(
        tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits)
    )


def moves(change: Iterable[tf.Tensor]) -> tf.Tensor:
    """Whether any entry of a change is not 0; a cohort without samples changes nothing."""
    return tf.reduce_any(tf.stack([tf.reduce_any(tf.not_equal(delta, 0.0)) for delta in change]))


def linear_head(task: TaskSpec, feature_dim: int | None = None) -> tf.keras.layers.Dense:
    """A linear classifier of features [batch, d]; weights uniform in ±1/sqrt(d), bias 0.

    d is that of the backbone by default.
    """
    uniform = tf.keras.initializers.VarianceScaling(1 / 3, "fan_in", "uniform")
    head = tf.keras.layers.Dense(task.num_classes, kernel_initializer=uniform, dtype="float32")
    head.build((None, feature_dim or task.feature_dim))
    return head


def projection(task: TaskSpec, width: int) -> tf.keras.Sequential:
    """Two dense layers, d → d → width, which contrastive methods put before the head."""
    hidden = tf.keras.layers.Dense(task.feature_dim, "relu", kernel_initializer="he_uniform")
    model = tf.keras.Sequential([hidden, tf.keras.layers.Dense(width, dtype="float32")])
    model.build((None, task.feature_dim))
    return model
