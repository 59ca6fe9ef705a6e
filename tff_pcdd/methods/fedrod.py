"""FedRoD: robust decoupling.

On Bridging Generic and Personalized Federated Learning for Image Classification; H.-Y. Chen, W.-L.
Chao; ICLR 2022.

Differs from FedAvg in two heads. The generic one, and with it the backbone, learns by balanced
softmax, cross-entropy on f_c + γ·log n_{k,c} with the client's counts (eq. 6), so that it does not
lean towards what the client has much of. The personal one stays at the client and learns what is
missing: cross-entropy on the sum of both heads' logits, through which no gradient reaches backbone
or generic head. The personal model is that sum, without any tuning; PA before and after local
epochs is one number.

A class that a client lacks leaves its balanced softmax, so a client with one class does not change
the backbone. The personal head starts at zero, where personal and generic model agree. This is the
paper's linear variant, without the hypernetwork. With γ = 0 the generic half is FedAvg.
"""

import dataclasses
from typing import ClassVar

from etils import epy

from tff_pcdd.methods.method import Method, Placement, cross_entropy, linear_head, register
from tff_pcdd.options import option

with epy.lazy_imports():
    import tensorflow as tf

    from tff_pcdd import losses


@register
@dataclasses.dataclass(frozen=True)
class FedRoD(Method):
    """FedAvg by balanced softmax, with a residual head at each client."""

    name = "fedrod"
    degenerate: ClassVar = {"gamma": 0.0}

    gamma: float = option(1.0, "γ, weight of the logarithm of class counts.", minimum=0)

    def build(self, task):
        return {**super().build(task), "personal_head": linear_head(task)}

    def placement(self, part, layer):
        return Placement.PERSONAL if part == "personal_head" else Placement.SHARED

    def initial_personal(self, net, seed):
        return [tf.zeros_like(variable) for variable in net.personal.all]

    def loss(self, net, batch, client):
        features = self.embed(net, batch.x, training=True)
        logits = net["head"](features)
        own = tf.stop_gradient(logits) + net["personal_head"](tf.stop_gradient(features))
        if self.gamma:
            logits = losses.balanced_logits(logits, client.class_counts, self.gamma)
        return cross_entropy(batch.y, logits) + cross_entropy(batch.y, own), {}

    def personal_logits(self, net, x, client):
        features = self.embed(net, x, training=False)
        return net["head"](features) + net["personal_head"](features)

    def personal_phases(self, net, epochs):
        return []
