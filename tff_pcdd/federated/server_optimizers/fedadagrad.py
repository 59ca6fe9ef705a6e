"""FedAdagrad: Adagrad at the server; see `_adaptive` for the paper.

β1 is 0 by default: its authors use no momentum with it.
"""

import dataclasses

from tff_pcdd.federated.server_optimizers._adaptive import Adaptive, beta1_option
from tff_pcdd.federated.server_optimizers.server_optimizer import register


@register
@dataclasses.dataclass(frozen=True)
class FedAdagrad(Adaptive):
    """v ← v + Δ²: step sizes fall with the sum of all squared changes."""

    name = "fedadagrad"

    beta1: float = beta1_option(0.0)

    def _square(self, square, change):
        return square + change
