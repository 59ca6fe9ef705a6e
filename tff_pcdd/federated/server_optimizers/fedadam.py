"""FedAdam: Adam at the server; see `_adaptive` for the paper."""

import dataclasses

from tff_pcdd.federated.server_optimizers._adaptive import Adaptive, beta2_option
from tff_pcdd.federated.server_optimizers.server_optimizer import register


@register
@dataclasses.dataclass(frozen=True)
class FedAdam(Adaptive):
    """v ← β2·v + (1 - β2)·Δ²: step sizes follow the recent changes."""

    name = "fedadam"

    beta2: float = beta2_option()

    def _square(self, square, change):
        return self.beta2 * square + (1 - self.beta2) * change
