"""A second head that the server trains on features, in addition to the one that clients train."""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Mapping
from typing import Any

from etils import epy

from tff_pcdd.methods.contract import Method
from tff_pcdd.methods.network import Network, Placement, linear_head, moves
from tff_pcdd.settings import option

with epy.lazy_imports():
    import tensorflow as tf

_BATCH = 32
_FEDAVG, _RECEIVED = "fedavg_", "received_"


@dataclasses.dataclass(frozen=True)
class RetrainingMethod(Method):
    """FedAvg, whose model the server turns into the global model by re-training the head.

    Clients train FedAvg's model, the pieces `fedavg_backbone` and `fedavg_head`, and never start
    from the re-trained head. What they send for the re-training is computed with FedAvg's backbone
    as it was broadcast (`received`), and the re-trained head fits this backbone. With the backbone
    that results from the round, for which no client has computed features yet, it can be worse than
    the head without re-training. The global model is therefore the broadcast backbone with the
    re-trained head, which is FedAvg's model of the previous round after re-training. The personal
    models start from it. The accuracy of FedAvg's own model is reported as `ga_fedavg`. With
    `epochs=0` nothing is re-trained, and the method is FedAvg.

    Both models are part of the weights, so the reported bytes are twice those of FedAvg's weights.
    A deployment needs less: the server already knows what clients return for the global model, and
    clients need the global model only for their personal models.
    """

    epochs: int = option(
        10, "Epochs of re-training the head at the server; 0 for FedAvg.", minimum=0
    )
    learning_rate: float = option(
        0.01, "Learning rate of re-training the head, by SGD without momentum.", above=0
    )

    def build(self, task):
        parts = super().build(task)
        if self.epochs:
            parts |= {
                f"{_FEDAVG}backbone": task.backbone(),
                f"{_FEDAVG}head": linear_head(task),
                f"{_RECEIVED}backbone": task.backbone(),
            }
        return parts

    def placement(self, part, layer):
        return Placement.SCRATCH if part.startswith(_RECEIVED) else super().placement(part, layer)

    def begin(self, net, client):
        if not self.epochs:
            return
        # Both models have the same initial values, those of FedAvg.
        for initial, trained in net.copies(_FEDAVG):
            trained.assign(tf.where(client.server["trained"], trained, initial))
        _assign(net[f"{_RECEIVED}backbone"], net[f"{_FEDAVG}backbone"])

    def server_state(self, net, task):
        return {"trained": tf.constant(False)} if self.epochs else {}

    def broadcast(self, server):
        return {"trained": server["trained"]} if self.epochs else {}

    def fedavg(self, net: Network) -> Network:
        """A view of the network with the pieces that clients train."""
        if not self.epochs:
            return net
        return net.replacing(**{name: net[f"{_FEDAVG}{name}"] for name in ("backbone", "head")})

    def local_view(self, net):
        return self.fedavg(net)

    def received(self, net: Network, x: tf.Tensor) -> tf.Tensor:
        """Features [batch, d], float32, of FedAvg's backbone as it was broadcast, in eval mode."""
        view = net.replacing(backbone=net[f"{_RECEIVED}backbone"])
        return tf.cast(self.embed(view, x, training=False), tf.float32)

    def loss(self, net, batch, client):
        return super().loss(self.fedavg(net), batch, client)

    def upload(self, net, client, reduce):
        """Makes the broadcast backbone that of the next global model, the same for all clients."""
        if self.epochs:
            _assign(net["backbone"], net[f"{_RECEIVED}backbone"])
        return super().upload(net, client, reduce)

    @abc.abstractmethod
    def retrain(
        self,
        head: tuple[tf.Tensor, tf.Tensor],
        retrained: tuple[tf.Tensor, tf.Tensor],
        server: Mapping[str, Any],
        sums: Mapping[str, tf.Tensor],
    ) -> tuple[tuple[tf.Tensor, tf.Tensor], dict[str, Any]]:
        """Trains a head at the server. Heads are pairs of a kernel [d, C] and a bias [C].

        Args:
            head: the new mean of the heads that clients trained.
            retrained: the re-trained head of the previous round, as it was broadcast.
            server: the server's own tensors before the round.
            sums: the clients' `Upload.sums`, summed.

        Returns:
            The new re-trained head, and the server's new own tensors.
        """

    def server_update(self, weights, change, server, sums, cohort_size):
        weights, server = super().server_update(weights, change, server, sums, cohort_size)
        if not self.epochs:
            return weights, server
        # The order is that of `build`; both models have the same number of variables.
        half = len(weights) // 2
        old, head = tuple(weights[half - 2 : half]), tuple(weights[-2:])
        retrained, state = self.retrain(head, old, server, sums)
        # A cohort without samples does not count as training.
        state["trained"] = tf.logical_or(server["trained"], moves(change))
        return [*weights[: half - 2], *retrained, *weights[half:]], state

    def global_logits(self, net, x):
        logits = super().global_logits(net, x)
        if self.epochs:
            logits["fedavg"] = super().global_logits(self.fedavg(net), x)[""]
        return logits


def _assign(piece: tf.keras.layers.Layer, other: tf.keras.layers.Layer) -> None:
    for variable, value in zip(piece.weights, other.weights, strict=True):
        variable.assign(value)


def with_ones(features: tf.Tensor) -> tf.Tensor:
    """Features [..., n, d] with a last column of ones, the inputs of the bias."""
    return tf.concat([features, tf.ones_like(features[..., :1])], axis=-1)


def train_head(
    head: tuple[tf.Tensor, tf.Tensor],
    features: tf.Tensor,
    labels: tf.Tensor,
    epochs: int,
    learning_rate: float,
    seed: tf.Tensor,
) -> tuple[tf.Tensor, tf.Tensor]:
    """Trains a linear head with cross-entropy by plain SGD on batches of 32.

    Args:
        head: initial kernel [d, C] and bias [C].
        features: float32 [n, d].
        labels: int32 [n].
        epochs: passes over the features, each in a random order.
        learning_rate: step size.
        seed: int32 [2], determines the orders.

    Returns:
        The new kernel and bias.
    """
    kernel, bias = head
    inputs, targets = with_ones(features), tf.one_hot(labels, bias.shape[0])
    size = tf.shape(inputs)[0]

    def train_epoch(epoch, matrix):
        fold = tf.random.experimental.stateless_fold_in(seed, epoch)
        order = tf.random.experimental.stateless_shuffle(tf.range(size), fold)
        x, y = tf.gather(inputs, order), tf.gather(targets, order)

        def step(start, matrix):
            batch = x[start : start + _BATCH]
            error = tf.nn.softmax(batch @ matrix) - y[start : start + _BATCH]
            gradient = tf.matmul(batch, error, transpose_a=True)
            count = tf.cast(tf.shape(batch)[0], tf.float32)
            return start + _BATCH, matrix - learning_rate / count * gradient

        _, matrix = tf.while_loop(lambda start, _: start < size, step, (tf.constant(0), matrix))
        return epoch + 1, matrix

    matrix = tf.concat([kernel, bias[None]], axis=0)
    _, matrix = tf.while_loop(
        lambda epoch, _: epoch < epochs, train_epoch, (tf.constant(0), matrix)
    )
    return matrix[:-1], matrix[-1]
