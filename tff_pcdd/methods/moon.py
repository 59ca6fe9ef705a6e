"""MOON: model-contrastive federated learning.

Model-Contrastive Federated Learning; Q. Li, B. He, D. Song; CVPR 2021.

Differs from FedAvg in a term of the local loss, cross-entropy + μ·L_con (eq. 3 and 4). It pulls the
features z of a sample to those of the global model, z_g, and away from those of the client's
previous model, z_p: L_con = -log(e^{s(z,z_g)/τ} / (e^{s(z,z_g)/τ} + e^{s(z,z_p)/τ})), where s is
the cosine. Gradients flow through z only; the two other networks are in eval mode. Features come
from a projection of two layers before the head (authors' code). With μ = 0 and without the
projection it is FedAvg.

Departure from the authors' code: the previous model of a client that has never trained is the
initial global model, so in the first round the term is constant; the authors draw a random one.
"""

import dataclasses
from typing import ClassVar

from etils import epy

from tff_pcdd.methods.contract import Method, register
from tff_pcdd.methods.network import Placement, cross_entropy, linear_head, projection, renamed
from tff_pcdd.settings import option

with epy.lazy_imports():
    import tensorflow as tf

    from tff_pcdd import losses

_GLOBAL, _PREVIOUS = "global_", "previous_"


@register
@dataclasses.dataclass(frozen=True)
class Moon(Method):
    """FedAvg with a term that contrasts the global with the client's previous features."""

    name = "moon"
    metric_names: ClassVar[tuple[str, ...]] = ("contrast",)
    degenerate: ClassVar = {"mu": 0.0, "projection_width": 0}
    tuning: ClassVar = {"mu": (0.1, 1.0, 5.0)}

    mu: float = option(
        5.0, "μ, weight of the contrastive term (CIFAR-10: 5, CIFAR-100: 1).", minimum=0
    )
    temperature: float = option(0.5, "τ, temperature of the contrastive term.", above=0)
    projection_width: int = option(
        256, "Output width of the projection; 0 for no projection.", minimum=0
    )

    def _encoder(self, task):
        parts = {"backbone": task.backbone()}
        if self.projection_width:
            parts["projection"] = projection(task, self.projection_width)
        return parts

    def build(self, task):
        parts = {**self._encoder(task), "head": linear_head(task, self.projection_width)}
        if self.mu:
            for prefix in (_GLOBAL, _PREVIOUS):
                parts |= renamed(self._encoder(task), prefix)
        return parts

    def placement(self, part, layer):
        if part.startswith(_GLOBAL):
            return Placement.SCRATCH
        return Placement.PERSONAL if part.startswith(_PREVIOUS) else Placement.SHARED

    def initial_personal(self, net, seed):
        return net.initial_personal(_PREVIOUS)

    def begin(self, net, client):
        net.refresh(_GLOBAL)

    def embed(self, net, x, training, prefix=""):
        features = net[f"{prefix}backbone"](x, training=training)
        return net[f"{prefix}projection"](features) if self.projection_width else features

    def loss(self, net, batch, client):
        features = self.embed(net, batch.x, training=True)
        loss, contrast = cross_entropy(batch.y, net["head"](features)), tf.constant(0.0)
        if self.mu:
            received, previous = (
                self.embed(net, batch.x, training=False, prefix=prefix)
                for prefix in (_GLOBAL, _PREVIOUS)
            )
            contrast = losses.model_contrast(features, received, previous, self.temperature)
            loss += self.mu * contrast
        return loss, {"contrast": contrast}

    def trained_variables(self, net):
        return net.common

    def upload(self, net, client, reduce):
        net.refresh(_PREVIOUS)
        return super().upload(net, client, reduce)
