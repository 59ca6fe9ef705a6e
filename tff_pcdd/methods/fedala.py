"""FedALA: adaptive local aggregation.

FedALA: Adaptive Local Aggregation for Personalized Federated Learning; J. Zhang, Y. Hua, H. Wang,
T. Song, Z. Xue, R. Ma, H. Guan; AAAI 2023.

Differs from FedAvg in where local training starts. A client does not start the upper layers at the
received weights Θ, but between Θ and its own last local model Θ_k, at Θ̂ = Θ_k + (Θ - Θ_k) ⊙ W_k.
W_k has one entry in [0, 1] for each entry of these layers; it starts at 1 and is never sent. Before
each local training, W_k is learned with everything else fixed: W_k ← clip(W_k - η·(∂L/∂Θ̂) ⊙ (Θ -
Θ_k)), one step for each batch of a random share of the client's samples (algorithm 1). The lower
layers start at the received weights. A client that has never trained starts at Θ. The global model
is the mean of the local ones. With layers=0 it is FedAvg.

The personal model before local epochs is the starting point with the W_k of the client's last
round. The personal model after local epochs has learned W_k and trained as in a round.

Departures from the authors' code: W_k is learned for `weight_epochs` passes in every round, whereas
the authors continue until the loss settles when a client learns W_k for the first time. The random
share is drawn from each batch. While W_k is learned, normalization layers use their moving
averages. The upper layers are the last p layers that have trained weights, including the head and
normalization layers. A client keeps only these layers of its last local model, because the others
are not used.
"""

import dataclasses
from typing import ClassVar

from etils import epy

from tff_pcdd.methods._shared.gradients import gradients_of, with_gradients
from tff_pcdd.methods.contract import Method, register
from tff_pcdd.methods.network import Placement, assign, cross_entropy, owned_weights
from tff_pcdd.methods.records import Phase, Upload
from tff_pcdd.settings import option

with epy.lazy_imports():
    import tensorflow as tf

    from tff_pcdd import layers

_PREVIOUS = "previous"
_WEIGHTS = "weights"


@register
@dataclasses.dataclass(frozen=True)
class FedALA(Method):
    """FedAvg whose clients start between the global and their own last model."""

    name = "fedala"
    degenerate: ClassVar = {"layers": 0}
    tuning: ClassVar = {"layers": (1, 2, 3)}

    layers: int = option(
        1, "p, number of layers, counted from the head, whose weights are learned.", minimum=0
    )
    share: float = option(
        0.8, "Share of each batch that is used to learn the weights.", above=0, maximum=1
    )
    weight_learning_rate: float = option(1.0, "η, learning rate of the weights.", above=0)
    weight_epochs: int = option(
        1, "Passes over the share of the samples, before local training.", minimum=1
    )

    def build(self, task):
        parts = super().build(task)
        if not self.layers:
            return parts
        shapes = [variable.shape for variable in self._upper(parts)]
        own = {_PREVIOUS: layers.Parameters(shapes), _WEIGHTS: layers.Parameters(shapes, 1.0)}
        return {**parts, **own}

    def _upper(self, parts):
        """The trained variables of the last layers."""
        groups: dict[int, list] = {}
        for part in (parts["backbone"], parts["head"]):
            trainable = {variable.ref() for variable in part.trainable_weights}
            for variable, owner in owned_weights(part):
                if variable.ref() in trainable:
                    groups.setdefault(id(owner), []).append(variable)
        return [variable for group in list(groups.values())[-self.layers :] for variable in group]

    def placement(self, part, layer):
        return Placement.PERSONAL if part in (_PREVIOUS, _WEIGHTS) else Placement.SHARED

    def client_state(self, net, task, seed):
        return {"trained": tf.constant(0.0)} if self.layers else {}

    def _mixtures(self, net, client):
        """For each variable Θ̂ of the upper layers: (Θ̂, Θ_k, Θ - Θ_k, W_k)."""
        received = {
            w.ref(): anchor for w, anchor in zip(net.shared.trainable, client.anchor, strict=True)
        }
        kept = zip(net[_PREVIOUS].tensors, net[_WEIGHTS].tensors, strict=True)
        mixtures = []
        for variable, (previous, weight) in zip(self._upper(net.parts), kept, strict=True):
            own = previous.read_value()
            # Nothing is received for normalization layers that the client keeps anyway.
            mixtures.append((variable, own, received.get(variable.ref(), own) - own, weight))
        return mixtures

    def begin(self, net, client):
        if not self.layers:
            return
        fresh = tf.equal(client.state["trained"], 0)
        for variable, previous in zip(self._upper(net.parts), net[_PREVIOUS].tensors, strict=True):
            previous.assign(tf.where(fresh, variable, previous))
        for variable, own, difference, weight in self._mixtures(net, client):
            variable.assign(own + difference * weight)

    def _weight_loss(self, net, batch, client):
        number = tf.cast(tf.shape(batch.y)[0], tf.float32)
        number = tf.maximum(1, tf.cast(tf.round(self.share * number), tf.int32))
        x, y = batch.x[:number], batch.y[:number]
        mixtures = self._mixtures(net, client)

        def loss():
            return cross_entropy(y, net["head"](self.embed(net, x, training=False)))

        value, gradients = gradients_of(loss, [variable for variable, *_ in mixtures])
        for (variable, own, difference, weight), gradient in zip(mixtures, gradients, strict=True):
            moved = weight - self.weight_learning_rate * gradient * difference
            weight.assign(tf.clip_by_value(moved, 0, 1))
            variable.assign(own + difference * weight)
        # The step has been taken; the optimizer must not take another one.
        weights = net[_WEIGHTS].tensors
        return with_gradients(value, weights, [tf.zeros_like(weight) for weight in weights]), {}

    def phases(self, net, epochs):
        training = Phase(net.common, epochs, self.loss)
        if not self.layers:
            return [training]
        weights = net[_WEIGHTS].tensors
        return [Phase(weights, self.weight_epochs, self._weight_loss, plain=True), training]

    def upload(self, net, client, reduce):
        if not self.layers:
            return super().upload(net, client, reduce)
        assign(net[_PREVIOUS].tensors, self._upper(net.parts))
        trains = tf.cast(tf.reduce_any(client.class_counts > 0), tf.float32)
        return Upload({}, {"trained": tf.maximum(client.state["trained"], trains)})

    def personal_phases(self, net, epochs):
        return self.phases(net, epochs)
