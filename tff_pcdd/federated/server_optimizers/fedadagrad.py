"""FedAdagrad: Adagrad at the server; see `_adaptive` for the paper."""

import dataclasses

from tff_pcdd.federated.server_optimizers._adaptive import Adaptive
from tff_pcdd.federated.server_optimizers.server_optimizer import register


@register
@dataclasses.dataclass(frozen=True)
class FedAdagrad(Adaptive):
    """v ← v + Δ²: step sizes fall with the sum of all squared changes."""

    name = "fedadagrad"

    def _square(self, square, change):
        return square + change
