"""The contract of a federated method, with FedAvg as the default of every part.

A method is a frozen dataclass whose fields are its hyper-parameters. It is plain TensorFlow: the
federated computations around it (`tff_pcdd.federated`) decide where and when its parts run. A
subclass overrides only what differs from FedAvg:

    part                        hook                    default (FedAvg)
    the model                   build, embed,           backbone and a linear head; any width
                                least_features          of features
    which variables go where    placement               all shared: broadcast and averaged
    client constants            constants               none
    local loss and step         loss, phases            cross-entropy, all trainable variables
    what is kept by the client  client_state            nothing
    before training             begin                   nothing
    what the server keeps       server_state            nothing beside the weights
    what is sent                broadcast, update,      the weights; their change, weighted by
                                weight, upload          the number of samples; nothing else
    the server's step           server_learning,        nothing is learnt at the server; add the
                                server_update           mean change
    the global model            global_logits           the head's logits
    the personal model          personalize,            the same, before and after the local
                                personal_logits,        epochs
                                personal_phases
    what diagnostics look at    global_classifiers      the head's matrix

Example, FedProx in full:

    @register
    @dataclasses.dataclass(frozen=True)
    class FedProx(Method):
        name = "fedprox"
        mu: float = option(0.01, "Weight of the proximal term.", minimum=0)

        def loss(self, net, batch, client):
            distance = sum(
                tf.nn.l2_loss(w - anchor)
                for w, anchor in zip(net.shared.trainable, client.anchor, strict=True)
            )
            loss, metrics = super().loss(net, batch, client)
            return loss + self.mu * distance, metrics
"""

from __future__ import annotations

import dataclasses
import enum
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

from etils import epy

from tff_pcdd.options import check_options

# Names and defaults of all methods stand on the command line; --help must not wait for TensorFlow.
with epy.lazy_imports():
    import tensorflow as tf

    from tff_pcdd import layers


class Placement(enum.Enum):
    """Where a variable lives between rounds."""

    SHARED = "shared"  # broadcast by the server, trained by clients, averaged
    PERSONAL = "personal"  # kept by the client from round to round, never uploaded
    # Kept by the client like a personal one; the cohort's mean of it completes the global model and
    # is where a client that never trained starts, but replaces nobody's own.
    MIRRORED = "mirrored"
    FIXED = "fixed"  # the same everywhere, never trained, never averaged
    SCRATCH = "scratch"  # what a computation works with; `Method.begin` fills it, nobody keeps it


@dataclasses.dataclass(frozen=True)
class Task:
    """What is to be learnt, as far as a method needs to know it.

    Attributes:
        num_classes: C, the number of classes of the federation.
        feature_dim: d, the width of the backbone's output.
        backbone: makes a fresh Keras model that maps a batch of inputs to features [batch, d].
        class_counts: int64 [K, C], training samples of each client and class. Simulation knows it;
            a method may use federation-wide sums of it (FedGELA's normaliser), never single rows.
        seed: seed of everything that is drawn when the model is made.
        num_rounds: planned rounds, for schedules.
        cohort_size: most clients that a round can have.
        server_samples: `server_samples(n)` gives inputs as stored and labels int32 of n training
            samples of each class, for methods whose server holds a small balanced set.
        personal_norms: clients keep their batch normalisation, whatever the method.
    """

    num_classes: int
    feature_dim: int
    backbone: Callable[[], tf.keras.Model]
    class_counts: Any
    seed: int = 0
    num_rounds: int = 1
    cohort_size: int = 1
    server_samples: Callable[[int], tuple[Any, Any]] | None = None
    personal_norms: bool = False


class Batch(NamedTuple):
    """A mini-batch as the loss sees it.

    Attributes:
        x: model inputs, float32 [batch, …] (normalised and augmented).
        y: labels, int32 [batch].
        seed: int32 [2], differs for every step of every client and round.
    """

    x: tf.Tensor
    y: tf.Tensor
    seed: tf.Tensor


class Client(NamedTuple):
    """What is known at a client while it trains or is evaluated.

    Attributes:
        class_counts: float32 [C], the client's training samples of each class.
        constants: what `Method.constants` made of them, computed once per round.
        anchor: the shared trainable variables as they were broadcast.
        state: the client's own tensors from `Method.client_state`.
        server: what `Method.broadcast` sent beside the weights.
        round: int32 scalar, 0 for the first round.
        steps: int32 scalar, optimiser steps the client takes in this round.
        seed: int32 [2], differs for every client and round; batches have seeds of their own.
        slot: int32 scalar, the client's place in the cohort, from 0.
        optimizer: the settings of local training: `learning_rate`, `momentum`, ….
    """

    class_counts: tf.Tensor
    constants: Mapping[str, tf.Tensor]
    anchor: Sequence[tf.Tensor]
    state: Mapping[str, Any]
    server: Mapping[str, Any]
    round: tf.Tensor
    steps: tf.Tensor
    seed: tf.Tensor
    slot: tf.Tensor | int = 0
    optimizer: Any = None


@dataclasses.dataclass(frozen=True)
class Phase:
    """A stretch of local training: these variables, this loss, so many epochs.

    Attributes:
        variables: those that move.
        epochs: passes over the client's samples.
        loss: as `Method.loss`.
        learning_rate: another step size than the clients' optimiser has.
    """

    variables: Sequence[tf.Variable]
    epochs: int
    loss: Callable[[Network, Batch, Client], tuple[tf.Tensor, Mapping[str, tf.Tensor]]]
    learning_rate: float | None = None


class Upload(NamedTuple):
    """What a client hands back beside its weights.

    Attributes:
        sums: named tensors that the server receives summed over the cohort.
        state: the client's new own tensors, of the structure that `Method.client_state` gave.
        sent: float32 scalar, the share of `sums` that the client has to send, because the rest is
            zero: it counts in the bytes that are reported.
    """

    sums: Mapping[str, tf.Tensor]
    state: Mapping[str, Any]
    sent: tf.Tensor | float = 1.0


class Variables(NamedTuple):
    """Variables of one placement: those an optimiser moves, and the statistics layers keep."""

    trainable: list[tf.Variable]
    statistics: list[tf.Variable]

    @property
    def all(self) -> list[tf.Variable]:
        return [*self.trainable, *self.statistics]


class Network:
    """The Keras pieces that a method trains, with their variables sorted by placement.

    Pieces are reached by name: `net["backbone"](x, training=True)`.

    Attributes:
        shared: variables that travel and are averaged.
        mirrored: variables that the client keeps, and whose mean completes the global model.
        personal: variables that the client keeps, and nobody else has any of.
        fixed: variables that never change.
    """

    def __init__(self, parts: Mapping[str, tf.keras.layers.Layer], method: Method, task: Task):
        self._parts = dict(parts)
        self.shared = Variables([], [])
        self.personal = Variables([], [])
        self.mirrored = Variables([], [])
        self.fixed: list[tf.Variable] = []
        for name, part in self._parts.items():
            if not part.built:
                part.build((None, task.feature_dim))
            trainable = {id(variable) for variable in part.trainable_weights}
            for variable, owner in _owned_weights(part):
                self._place(
                    variable, _placement(method, task, name, owner), id(variable) in trainable
                )

    def _place(self, variable, placement: Placement, trainable: bool) -> None:
        if placement is Placement.FIXED:
            self.fixed.append(variable)
        elif placement is not Placement.SCRATCH:
            group = getattr(self, placement.value)
            (group.trainable if trainable else group.statistics).append(variable)

    def __getitem__(self, part: str) -> tf.keras.layers.Layer:
        return self._parts[part]

    @property
    def parts(self) -> Mapping[str, tf.keras.layers.Layer]:
        return self._parts

    def copies(self, prefix: str) -> list[tuple[tf.Variable, tf.Variable]]:
        """Pairs (variable of the piece `name`, the same of the piece `<prefix><name>`)."""
        return [
            pair
            for name in self._parts
            if f"{prefix}{name}" in self._parts
            for pair in zip(
                self._parts[name].weights, self._parts[f"{prefix}{name}"].weights, strict=True
            )
        ]

    @property
    def variables(self) -> list[tf.Variable]:
        """All variables, wherever they are placed, piece by piece."""
        return [variable for part in self._parts.values() for variable in part.variables]

    @property
    def kept(self) -> list[tf.Variable]:
        """All variables that the client keeps between rounds."""
        return [*self.personal.all, *self.mirrored.all]

    @property
    def common(self) -> list[tf.Variable]:
        """The variables that local training may move in the global model."""
        return [*self.shared.trainable, *self.mirrored.trainable]

    @property
    def trainable(self) -> list[tf.Variable]:
        """All variables that local training may move."""
        return [*self.common, *self.personal.trainable]


def _placement(method: Method, task: Task, part: str, layer) -> Placement:
    """Where a method wants a layer's variables, unless clients keep their batch normalisation."""
    placement = method.placement(part, layer)
    if task.personal_norms and placement is Placement.SHARED and is_batch_norm(layer):
        return Placement.MIRRORED
    return placement


def is_batch_norm(layer: tf.keras.layers.Layer) -> bool:
    """Whether a layer normalises by statistics of the batch, whatever its name."""
    return isinstance(layer, (layers.BatchNormalization, tf.keras.layers.BatchNormalization))


def _owned_weights(part):
    """Pairs of a weight and the innermost layer that owns it, in the order of `part.weights`."""
    owner = {}
    for layer in (part, *part.submodules):
        if not isinstance(layer, tf.keras.layers.Layer):
            continue
        for weight in layer.weights:
            known = owner.get(id(weight))
            if known is None or len(layer.weights) < len(known.weights):
                owner[id(weight)] = layer
    return [(weight, owner[id(weight)]) for weight in part.weights]


def cross_entropy(labels: tf.Tensor, logits: tf.Tensor) -> tf.Tensor:
    """Mean cross-entropy of integer labels [batch] under logits [batch, C]."""
    return tf.reduce_mean(
        tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits)
    )


def linear_head(task: Task, feature_dim: int | None = None) -> tf.keras.layers.Dense:
    """A linear classifier of features [batch, d], weights uniform in ±1/sqrt(d), bias 0."""
    uniform = tf.keras.initializers.VarianceScaling(1 / 3, "fan_in", "uniform")
    head = tf.keras.layers.Dense(task.num_classes, kernel_initializer=uniform, dtype="float32")
    head.build((None, feature_dim or task.feature_dim))
    return head


def projection(task: Task, width: int) -> tf.keras.Sequential:
    """Two dense layers, d → d → width, which contrastive methods put in front of the head."""
    hidden = tf.keras.layers.Dense(task.feature_dim, "relu", kernel_initializer="he_uniform")
    model = tf.keras.Sequential([hidden, tf.keras.layers.Dense(width, dtype="float32")])
    model.build((None, task.feature_dim))
    return model


@dataclasses.dataclass(frozen=True)
class Method:
    """FedAvg, in parts that a method may replace. See the module's docstring."""

    name: ClassVar[str] = ""
    # Named scalars that `loss` returns beside the loss; their means go to metrics.csv.
    metric_names: ClassVar[tuple[str, ...]] = ()
    # Options under which the method is FedAvg, bit for bit; None where there are none.
    degenerate: ClassVar[Mapping[str, Any] | None] = None
    # Width of the linear layer that the method puts behind the backbone, unless told otherwise.
    projection_dim: ClassVar[int] = 0
    # Whether there is one model for everybody, which GA can be measured on.
    has_global_model: ClassVar[bool] = True

    def __post_init__(self):
        check_options(self, f"{self.name}_")

    # The model.

    def build(self, task: Task) -> dict[str, tf.keras.layers.Layer]:
        """Makes the named Keras pieces of the network, fresh variables each time."""
        return {"backbone": task.backbone(), "head": linear_head(task)}

    def least_features(self, num_classes: int) -> int:
        """The smallest width of features that the method's classifier can work with."""
        del num_classes
        return 1

    def embed(self, net: Network, x: tf.Tensor, training: bool) -> tf.Tensor:
        """Features [batch, d] as the global classifier sees them."""
        return net["backbone"](x, training=training)

    def placement(self, part: str, layer: tf.keras.layers.Layer) -> Placement:
        """Where the variables lie that `layer`, somewhere inside the piece `part`, owns."""
        del part, layer
        return Placement.SHARED

    # Local training.

    def begin(self, net: Network, client: Client) -> None:
        """Fills scratch variables from the loaded weights, before training or evaluation."""
        del net, client

    def constants(self, class_counts: tf.Tensor, task: Task) -> dict[str, tf.Tensor]:
        """What follows from the client's training labels, float32 counts [C], once a round."""
        del class_counts, task
        return {}

    def loss(
        self, net: Network, batch: Batch, client: Client
    ) -> tuple[tf.Tensor, dict[str, tf.Tensor]]:
        """The scalar training loss of a batch, and the scalars called in `metric_names`."""
        del client
        logits = net["head"](self.embed(net, batch.x, training=True))
        return cross_entropy(batch.y, logits), {}

    def phases(self, net: Network, epochs: int) -> list[Phase]:
        """The stretches of local training in their order; each starts with zero momentum."""
        return [Phase(net.trainable, epochs, self.loss)]

    # State, and what travels.

    def server_state(self, net: Network, task: Task) -> dict[str, Any]:
        """Initial tensors that the server keeps beside the weights; `net` holds the first ones."""
        del net, task
        return {}

    def broadcast(self, server: Mapping[str, Any]) -> dict[str, Any]:
        """The part of the server's own tensors that goes to the clients."""
        return dict(server)

    def client_state(self, net: Network, task: Task, seed: tf.Tensor) -> dict[str, Any]:
        """Initial own tensors of a client, beside its personal variables; `seed` is int32 [2]."""
        del net, task, seed
        return {}

    def initial_personal(self, net: Network, seed: tf.Tensor) -> list[tf.Tensor]:
        """Initial personal variables of a client: the same for all unless the method says so."""
        del seed
        return [tf.identity(variable) for variable in net.personal.all]

    def update(self, net: Network, client: Client) -> list[tf.Tensor]:
        """The change of the shared trainable variables that the client uploads."""
        return [w - anchor for w, anchor in zip(net.shared.trainable, client.anchor, strict=True)]

    def weight(self, client: Client) -> tf.Tensor:
        """The client's weight in the mean over the cohort, float32 scalar."""
        return tf.reduce_sum(client.class_counts)

    def upload(self, net: Network, client: Client, reduce: Callable) -> Upload:
        """What else the client hands back after training.

        Args:
            net: the network as local training left it.
            client: as during training.
            reduce: `reduce(function, initial)` folds `function(total, x, y)` over the client's
                training samples in large batches, in order and without augmentation.
        """
        del net, reduce
        return Upload({}, dict(client.state))

    def server_learning(
        self,
        net: Network,
        server: Mapping[str, Any],
        change: Sequence[tf.Tensor],
        sums: Mapping[str, tf.Tensor],
        task: Task,
        learn: Callable,
    ) -> dict[str, Any]:
        """What the server learns on its own, before its step.

        Args:
            net: the network as it was broadcast.
            server: the server's own tensors before the round.
            change: mean over the cohort of the clients' `update`.
            sums: the clients' `Upload.sums`, summed.
            task: what is learnt; `task.server_samples` are the server's own.
            learn: `learn(x, y, loss, number)` trains all trainable variables of `net`, from the
                weights that were broadcast, on inputs x as stored and labels y by the clients'
                recipe; draws of different numbers differ.

        Returns:
            The server's own tensors, as `server_update` will see them.
        """
        del net, change, sums, task, learn
        return dict(server)

    def server_update(
        self,
        weights: Sequence[tf.Tensor],
        change: Sequence[tf.Tensor],
        server: Mapping[str, Any],
        sums: Mapping[str, tf.Tensor],
        cohort_size: tf.Tensor,
    ) -> tuple[list[tf.Tensor], dict[str, Any]]:
        """The server's step.

        Args:
            weights: shared trainable variables before the round.
            change: mean over the cohort of the clients' `update`.
            server: the server's own tensors before the round.
            sums: the clients' `Upload.sums`, summed.
            cohort_size: float32 scalar, clients in the round.

        Returns:
            The new weights and the server's new own tensors.
        """
        del sums, cohort_size
        return [w + delta for w, delta in zip(weights, change, strict=True)], dict(server)

    # The models that come out.

    def global_logits(self, net: Network, x: tf.Tensor) -> dict[str, tf.Tensor]:
        """Logits [batch, C] of the global model, in eval mode; the entry "" is the one GA means.

        Further entries are heads reported beside it from the same pass, as `ga_<name>`.
        """
        return {"": net["head"](self.embed(net, x, training=False))}

    def personalize(self, net: Network, client: Client) -> None:
        """Assigns what makes the client's model of the loaded weights, before any local step."""
        del net, client

    def personal_logits(self, net: Network, x: tf.Tensor, client: Client) -> tf.Tensor:
        """Logits [batch, C] of the client's personal model, in eval mode."""
        del client
        return self.global_logits(net, x)[""]

    def personal_phases(self, net: Network, epochs: int) -> list[Phase]:
        """Local training of the personal model before it is evaluated a second time.

        By default all that local training moves is tuned by plain cross-entropy, as the papers do
        for methods whose product is the global model.
        """
        return [Phase(net.trainable, epochs, functools.partial(Method.loss, self))]

    # What diagnostics look at.

    def global_classifiers(self, net: Network) -> dict[str, tf.Tensor]:
        """Matrices [d, C] of linear classifiers on what `embed` gives, a column for each class.

        The entry "" belongs to the global model; it is absent where a method classifies otherwise.
        Further entries are reported beside it, under their names.
        """
        head = net.parts.get("head")
        matrix = getattr(head, "kernel", getattr(head, "etf", None))
        return {} if matrix is None else {"": matrix}


_REGISTRY: dict[str, type[Method]] = {}


def register(cls: type[Method]) -> type[Method]:
    """Class decorator that makes a method known by its `name`.

    The class of the same module and name replaces the one before, so that the cell of a notebook
    that defines it can run again.

    Raises:
        ValueError: the class has no name, or another class has taken it.
    """
    if not cls.name:
        raise ValueError(f"{cls.__name__} needs a class attribute `name`")
    taken = _REGISTRY.get(cls.name, cls)
    if (taken.__module__, taken.__qualname__) != (cls.__module__, cls.__qualname__):
        raise ValueError(f"the method name {cls.name!r} is taken by {taken}")
    _REGISTRY[cls.name] = cls
    return cls


def registry() -> dict[str, type[Method]]:
    """All registered methods by name."""
    return dict(_REGISTRY)
