"""APFL: adaptive personalized federated learning.

Adaptive Personalized Federated Learning; Y. Deng, M. M. Kamani, M. Mahdavi; arXiv 2003.13461, 2020.

Differs from FedAvg in a second network v_k at each client and a share α_k. The personal model is
the mixture of weights α_k·v_k + (1 - α_k)·w. While the client trains w as in FedAvg, each batch
also moves v_k along the gradient of the loss of the mixture, α_k·∇f_k(mixture), in which w is the
client's current local model (algorithm 1). If the share is adaptive, each batch sets α_k ← α_k -
η·⟨v_k - w, ∇f_k(mixture)⟩ with the clients' learning rate η, clipped to [0, 1]. The mean over
clients is unweighted (algorithm 1 and the authors' code). With client_weighting=samples the global
model is that of FedAvg for every α. With a fixed α = 0, the personal model has the weights of the
global one.

Between rounds, the personal model is the mixture with the broadcast w, without fine-tuning. v_k
starts at the initial w. The statistics of normalization layers are not mixed: those of the personal
model are moving averages over the client's own batches, computed with the mixture in the client's
last rounds of training. The paper says nothing about them; in the authors' code they belong to v_k
too, but only clients that have just trained are evaluated. If a client has not trained for many
rounds, w has changed since, and so has the mixture. How much accuracy this costs depends on α, and
only a little on the statistics: on digits (P10C2, 2 of 10 clients in a round), PA before local
epochs fell by 0.1 points in four or more rounds, and with α fixed at 0.25 by 18.

Departures from the authors' code, which is in FedTorch: the code mixes the outputs of the two
networks and not their weights, updates α only at the first batch of a round, adds 0.02·α to its
gradient, and moves w first and mixes with the new w; here, as in algorithm 1, both gradients are
those of the old w. Here, the two gradients are clipped separately, and v_k is trained with the
momentum and the weight decay of the clients' optimizer.
"""

import dataclasses
from typing import ClassVar

from etils import epy

from tff_pcdd.methods._shared.gradients import gradients_at, with_gradients
from tff_pcdd.methods._shared.own_model import OwnModelMethod
from tff_pcdd.methods.contract import register
from tff_pcdd.methods.network import Placement, assign, cross_entropy
from tff_pcdd.methods.records import Phase
from tff_pcdd.settings import option

with epy.lazy_imports():
    import tensorflow as tf

    from tff_pcdd import layers

_SHARE = "share"


@register
@dataclasses.dataclass(frozen=True)
class APFL(OwnModelMethod):
    """FedAvg with a second network at each client, mixed with the global one."""

    name = "apfl"
    degenerate: ClassVar = {"alpha": 0.0, "adaptive": False, "client_weighting": "samples"}
    tuning: ClassVar = {"alpha": (0.25, 0.5, 0.75)}
    published_weighting = "uniform"

    alpha: float = option(
        0.5, "α, share of the client's own network in the mixture.", minimum=0, maximum=1
    )
    adaptive: bool = option(True, "Whether each client learns its share, starting from alpha.")

    def build(self, task):
        parts = super().build(task)
        return {**parts, _SHARE: layers.Parameters([()], self.alpha)} if self.adaptive else parts

    def placement(self, part, layer):
        return Placement.PERSONAL if part == _SHARE else super().placement(part, layer)

    def _mixed(self, net):
        """α, the pairs of trained variables (w, v), and the mixture of each pair."""
        alpha = net[_SHARE].tensors[0].read_value() if self.adaptive else self.alpha
        pairs = self.trained_pairs(net)
        return alpha, pairs, [tf.stop_gradient(alpha * v + (1 - alpha) * w) for w, v in pairs]

    def loss(self, net, batch, client):
        loss, metrics = super().loss(net, batch, client)

        def mixture_loss():
            return cross_entropy(batch.y, self.own_logits(net, batch.x, training=True))

        alpha, pairs, mixture = self._mixed(net)
        own = [v for _, v in pairs]
        value, gradients = gradients_at(mixture, mixture_loss, own)
        if self.adaptive:
            slopes = [
                tf.reduce_sum((v - w) * g) for (w, v), g in zip(pairs, gradients, strict=True)
            ]
            moved = alpha - client.optimizer.learning_rate * tf.add_n(slopes)
            net[_SHARE].tensors[0].assign(tf.clip_by_value(moved, 0, 1))
        return loss + with_gradients(value, own, [alpha * g for g in gradients]), metrics

    def phases(self, net, epochs):
        own = [v for _, v in self.trained_pairs(net)]
        return [Phase([*net.common, *own], epochs, self.loss, apart=own)]

    def personalize(self, net, client):
        _, pairs, mixture = self._mixed(net)
        assign([v for _, v in pairs], mixture)
