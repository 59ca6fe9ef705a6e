"""A step along the mean change, times a step size."""

import dataclasses

from tff_pcdd.errors import SettingError
from tff_pcdd.federated.server_optimizers.server_optimizer import (
    ServerOptimizer,
    learning_rate_option,
    register,
)


@register
@dataclasses.dataclass(frozen=True)
class ServerSGD(ServerOptimizer):
    """w ← w + η·Δ; with η = 1 the mean change is added, as in FedAvg."""

    name = "sgd"

    learning_rate: float = learning_rate_option(1.0)

    @property
    def adds_change(self):
        return self.learning_rate == 1

    def _refusal(self, reason, instead="another method"):
        choice = f"choose server_learning_rate=1, or {instead}"
        return SettingError(
            "server_learning_rate", self.learning_rate, f"{reason}; {choice}", kind=reason
        )

    def _step(self, change, state):
        return [self.learning_rate * delta for delta in change], state
