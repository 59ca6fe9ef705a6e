"""FedNTD: federated not-true distillation.

Preservation of the Global Knowledge by Not-True Distillation in Federated Learning; G. Lee, M.
Jeong, Y. Shin, S. Bae, S.-Y. Yun; NeurIPS 2022.

Differs from FedAvg in a term of the local loss, cross-entropy + β·L_ntd. L_ntd is τ² times the mean
over samples of KL(p_g ‖ p), where p and p_g are the local and the global model's softmax of the
logits divided by τ, over all classes except the true one. Local training therefore preserves the
global model's predictions for the other classes, which a client with few classes would otherwise
forget. The global model is that of the start of the round. With β = 0 it is FedAvg.

The factor τ² and the default settings, β = τ = 1, are those of the authors' code. Here the global
model is always in eval mode; the authors' networks have no layers for which this matters."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

from etils import epy

from tff_pcdd.methods._shared.received import ReceivedModelMethod
from tff_pcdd.methods.contract import register
from tff_pcdd.methods.network import cross_entropy
from tff_pcdd.settings import option

with epy.lazy_imports():
    import tensorflow as tf

    from tff_pcdd import losses


@register
@dataclasses.dataclass(frozen=True)
class FedNTD(ReceivedModelMethod):
    """FedAvg with distillation of the global model over all classes except the true one."""

    name = "fedntd"
    metric_names = ("distillation",)
    degenerate: ClassVar = {"beta": 0.0}
    tuning: ClassVar = {"beta": (0.3, 1.0, 3.0)}

    beta: float = option(1.0, "β, weight of the distillation.", minimum=0)
    temperature: float = option(1.0, "τ, temperature of the distillation.", above=0)

    @property
    def compares(self):
        return self.beta > 0

    def loss(self, net, batch, client):
        logits = net["head"](self.embed(net, batch.x, training=True))
        loss, distillation = cross_entropy(batch.y, logits), tf.constant(0.0)
        if self.beta:
            teacher = self.received_logits(net, batch.x)
            distillation = losses.not_true_divergence(teacher, logits, batch.y, self.temperature)
            loss += self.beta * distillation
        return loss, {"distillation": distillation}
