"""FedYogi: Yogi at the server; see `_adaptive` for the paper."""

import dataclasses

from etils import epy

from tff_pcdd.federated.server_optimizers._adaptive import Adaptive, beta2_option
from tff_pcdd.federated.server_optimizers.server_optimizer import register

with epy.lazy_imports():
    import tensorflow as tf


@register
@dataclasses.dataclass(frozen=True)
class FedYogi(Adaptive):
    """v ← v - (1 - β2)·Δ²·sign(v - Δ²): v grows and falls at the same limited rate."""

    name = "fedyogi"

    beta2: float = beta2_option()

    def _square(self, square, change):
        return square - (1 - self.beta2) * change * tf.sign(square - change)
