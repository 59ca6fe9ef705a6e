"""FedProc: prototypical contrastive federated learning.

FedProc: Prototypical Contrastive Federated Learning on Non-IID Data; X. Mu, Y. Shen, K. Cheng, X.
Geng, J. Fu, T. Zhang, Z. Zhang; arXiv:2109.12273, 2021; Future Generation Computer Systems 143,
2023.

Differs from FedAvg in the local loss, α_t·L_gpc + (1 - α_t)·cross-entropy. L_gpc is the
cross-entropy of the cosines between a sample's feature and all global prototypes, divided by a
temperature: it pulls features to the prototype of their own class and away from the others. α_t
decreases from 1 to 1/T over the rounds t = 0, …, T - 1, α_t = 1 - t/T, so that the representation
is learned first. Features come from a projection, as in MOON. `contrast_weight` multiplies α_t; if
it is 0 and there is no projection, the method is FedAvg.

Where the paper is silent: if no class of a batch has a prototype, as in the first round, the loss
is cross-entropy alone; a sample whose class has no prototype is excluded from L_gpc; prototypes are
means over samples. No code of the authors is known.
"""

import dataclasses
from typing import ClassVar

from etils import epy

from tff_pcdd.methods._shared.prototypes import PrototypeMethod
from tff_pcdd.methods.contract import register
from tff_pcdd.methods.network import cross_entropy, linear_head, projection
from tff_pcdd.settings import option

with epy.lazy_imports():
    import tensorflow as tf

    from tff_pcdd import losses


@register
@dataclasses.dataclass(frozen=True)
class FedProc(PrototypeMethod):
    """FedAvg with a contrastive term on global prototypes that fades out over the rounds."""

    name = "fedproc"
    metric_names = ("contrast",)
    has_schedule = True
    degenerate: ClassVar = {"contrast_weight": 0.0, "projection_width": 0}
    tuning: ClassVar = {"contrast_weight": (0.1, 0.5, 1.0)}

    contrast_weight: float = option(
        1.0,
        "α in the first round, the share of the contrastive term in the loss.",
        minimum=0,
        maximum=1,
    )
    temperature: float = option(0.5, "Temperature of the contrastive term.", above=0)
    projection_width: int = option(
        256, "Output width of the projection; 0 for no projection.", minimum=0
    )

    def build(self, task):
        parts = {"backbone": task.backbone(), "head": linear_head(task, self.projection_width)}
        if self.projection_width:
            parts["projection"] = projection(task, self.projection_width)
        return parts

    def embed(self, net, x, training):
        features = net["backbone"](x, training=training)
        return net["projection"](features) if self.projection_width else features

    def constants(self, class_counts, task):
        return {"rounds": tf.constant(float(task.num_rounds))}

    def loss(self, net, batch, client):
        features = self.embed(net, batch.x, training=True)
        loss, contrast = cross_entropy(batch.y, net["head"](features)), tf.constant(0.0)
        if self.contrast_weight:
            contrast, any_known = losses.prototype_contrast(
                features,
                batch.y,
                client.server["prototypes"],
                client.server["valid"],
                self.temperature,
            )
            progress = tf.cast(client.round, tf.float32) / client.constants["rounds"]
            share = self.contrast_weight * (1 - progress) * tf.cast(any_known, tf.float32)
            loss = share * contrast + (1 - share) * loss
        return loss, {"contrast": contrast}
