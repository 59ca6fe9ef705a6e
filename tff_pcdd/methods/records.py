"""The records that a method receives and returns."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from etils import epy

with epy.lazy_imports():
    import tensorflow as tf

if TYPE_CHECKING:
    from tff_pcdd.methods.network import Network


@dataclasses.dataclass(frozen=True)
class TaskSpec:
    """What is learned, as far as a method needs to know it.

    Attributes:
        num_classes: C, the number of classes of the federation.
        feature_dim: d, the width of the backbone's output.
        backbone: makes a fresh Keras model that maps a batch of inputs to features [batch, d].
        class_counts: int64 [K, C], training samples of each client and class. The simulation knows
            them; a method may use sums over the federation (FedGELA's normalizer), but never the
            row of a single client.
        seed: seed of everything that is drawn when the model is made.
        num_rounds: planned rounds, for methods with `has_schedule`; else None.
        cohort_size: maximum number of clients in a round.
        server_samples: `server_samples(n)` returns inputs as stored and int32 labels of n training
            samples of each class, for methods whose server holds a small balanced set.
        personal_norms: whether clients keep their batch normalization with every method.
    """

    num_classes: int
    feature_dim: int
    backbone: Callable[[], tf.keras.Model]
    class_counts: Any
    seed: int = 0
    num_rounds: int | None = None
    cohort_size: int = 1
    server_samples: Callable[[int], tuple[Any, Any]] | None = None
    personal_norms: bool = False


class Batch(NamedTuple):
    """A mini-batch as the loss receives it.

    Attributes:
        x: model inputs, float32 [batch, …] (normalized and augmented).
        y: labels, int32 [batch].
        seed: int32 [2], different for every step of every client and round.
    """

    x: tf.Tensor
    y: tf.Tensor
    seed: tf.Tensor


class Client(NamedTuple):
    """What is known at a client while it trains or is evaluated.

    Attributes:
        class_counts: float32 [C], the client's training samples of each class.
        constants: what `Method.constants` computed from the class counts, once per round.
        anchor: the shared trainable variables as they were broadcast.
        state: the client's own tensors, see `Method.client_state`.
        server: what `Method.broadcast` sent besides the weights.
        round: int32 scalar, 0 for the first round.
        steps: int32 scalar, optimizer steps that the client takes in this round; fewer than planned
            if local work is unequal.
        seed: int32 [2], different for every client and round; batches have seeds of their own.
        cohort_index: int32 scalar, the client's position in the cohort, from 0.
        optimizer: the clients' optimizer: `learning_rate`, the scheduled step size of the round,
            a float or a float32 scalar; for sgd `momentum`, ….
    """

    class_counts: tf.Tensor
    constants: Mapping[str, tf.Tensor]
    anchor: Sequence[tf.Tensor]
    state: Mapping[str, Any]
    server: Mapping[str, Any]
    round: tf.Tensor
    steps: tf.Tensor
    seed: tf.Tensor
    cohort_index: tf.Tensor | int = 0
    optimizer: Any = None


@dataclasses.dataclass(frozen=True)
class Phase:
    """A stage of local training.

    Attributes:
        variables: the variables that are trained.
        epochs: passes over the client's samples.
        loss: as `Method.loss`.
        learning_rate: step size without a schedule, if it is not that of the clients' optimizer.
        plain: whether to train by SGD without momentum and without weight decay.
        apart: those of the variables whose gradient is clipped separately, so that it does not
            influence the steps of the others.
    """

    variables: Sequence[tf.Variable]
    epochs: int
    loss: Callable[[Network, Batch, Client], tuple[tf.Tensor, Mapping[str, tf.Tensor]]]
    learning_rate: float | None = None
    plain: bool = False
    apart: Sequence[tf.Variable] = ()

    @property
    def groups(self) -> list[Sequence[tf.Variable]]:
        """The groups of variables whose gradients are clipped together."""
        own = {variable.ref() for variable in self.apart}
        others = [variable for variable in self.variables if variable.ref() not in own]
        return [others, self.apart] if self.apart else [self.variables]


class Upload(NamedTuple):
    """What a client returns besides its weights.

    Attributes:
        sums: named tensors that the server receives summed over the cohort.
        state: the client's new own tensors, with the structure that `Method.client_state` returned.
        sent: float32 scalar, the share of `sums` that the client has to send; the rest is known to
            be zero and does not count in the reported bytes.
    """

    sums: Mapping[str, tf.Tensor]
    state: Mapping[str, Any]
    sent: tf.Tensor | float = 1.0
