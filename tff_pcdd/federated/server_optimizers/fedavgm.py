"""FedAvgM: momentum at the server.

Measuring the Effects of Non-Identical Data Distribution for Federated Visual Classification; T.-M.
H. Hsu, H. Qi, M. Brown; arXiv:1909.06335, 2019; section 4.3.
"""

import dataclasses

from etils import epy

from tff_pcdd.federated.server_optimizers.server_optimizer import (
    ServerOptimizer,
    learning_rate_option,
    register,
)
from tff_pcdd.settings import option

with epy.lazy_imports():
    import tensorflow as tf


@register
@dataclasses.dataclass(frozen=True)
class FedAvgM(ServerOptimizer):
    """v ← β·v + Δ, w ← w + η·v; without momentum and with η = 1 it is FedAvg."""

    name = "fedavgm"

    learning_rate: float = learning_rate_option(1.0)
    momentum: float = option(0.9, "β, momentum of the server.", minimum=0, maximum=0.9999)

    def initial_state(self, weights):
        return {"momentum": [tf.zeros_like(w) for w in weights]}

    def _step(self, change, state):
        momentum = [
            self.momentum * v + delta for v, delta in zip(state["momentum"], change, strict=True)
        ]
        return [self.learning_rate * v for v in momentum], {"momentum": momentum}
