"""FedProx.

Federated Optimization in Heterogeneous Networks; T. Li, A. K. Sahu, M. Zaheer, M. Sanjabi, A.
Talwalkar, V. Smith; MLSys 2020.

Differs from FedAvg in a proximal term of the local loss, μ/2·‖w - w_t‖², which keeps clients near
the global model of the round (eq. 2). It includes trained variables only, not the statistics of
normalization layers. With μ = 0 it is FedAvg.

Departure from the authors' code: the term is part of the loss and therefore enters the momentum;
their solver is SGD without momentum.
"""

import dataclasses
from typing import ClassVar

from etils import epy

from tff_pcdd.methods.contract import Method, register
from tff_pcdd.settings import option

with epy.lazy_imports():
    import tensorflow as tf


@register
@dataclasses.dataclass(frozen=True)
class FedProx(Method):
    """FedAvg with a proximal term that keeps clients near the global model."""

    name = "fedprox"
    degenerate: ClassVar = {"mu": 0.0}
    tuning: ClassVar = {"mu": (0.001, 0.01, 0.1)}

    mu: float = option(0.01, "μ, weight of the proximal term.", minimum=0)

    def loss(self, net, batch, client):
        loss, metrics = super().loss(net, batch, client)
        if self.mu:
            # l2_loss is half of the squared norm.
            distances = [
                tf.nn.l2_loss(w - anchor)
                for w, anchor in zip(net.shared.trainable, client.anchor, strict=True)
            ]
            loss += self.mu * tf.add_n(distances)
        return loss, metrics
