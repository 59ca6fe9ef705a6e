"""FedRoD: robust decoupling.

On Bridging Generic and Personalized Federated Learning for Image Classification; H.-Y. Chen, W.-L.
Chao; ICLR 2022.

Differs from FedAvg in two heads. The generic head and the backbone are trained by the balanced
softmax, cross-entropy on f_c + γ·log n_{k,c} with the client's class counts (eq. 6), so that they
are not biased towards the client's frequent classes. The personal head stays at the client and
learns the residual: cross-entropy on the sum of both heads' logits, whose gradient reaches neither
the backbone nor the generic head. The gradients of the two losses are clipped separately. The
personal model is that sum without fine-tuning, so PA is the same before and after the local epochs.
With γ = 0 the generic half is FedAvg.

A class that a client lacks is excluded from its balanced softmax; a client with a single class
therefore does not change the backbone. The personal head is initialized to zero, so that the
personal and the generic model agree at first. This is the paper's linear variant, without the
hypernetwork.
"""

import dataclasses
from typing import ClassVar

from etils import epy

from tff_pcdd.methods.contract import Method, register
from tff_pcdd.methods.network import Placement, cross_entropy, linear_head
from tff_pcdd.methods.records import Phase
from tff_pcdd.settings import option

with epy.lazy_imports():
    import tensorflow as tf

    from tff_pcdd import losses


@register
@dataclasses.dataclass(frozen=True)
class FedRoD(Method):
    """FedAvg with the balanced softmax and a personal residual head."""

    name = "fedrod"
    degenerate: ClassVar = {"gamma": 0.0}
    tuning: ClassVar = {"gamma": (0.5, 1.0, 2.0)}

    gamma: float = option(1.0, "γ, weight of the logarithm of the class counts.", minimum=0)

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

    def phases(self, net, epochs):
        return [
            Phase(net.trainable, epochs, self.loss, apart=net["personal_head"].trainable_weights)
        ]

    def personal_logits(self, net, x, client):
        features = self.embed(net, x, training=False)
        return net["head"](features) + net["personal_head"](features)

    def personal_phases(self, net, epochs):
        return []
