"""What FedAdagrad, FedAdam and FedYogi have in common.

Adaptive Federated Optimization; S. J. Reddi, Z. Charles, M. Zaheer, Z. Garrett, K. Rush, J.
Konečný, S. Kumar, H. B. McMahan; ICLR 2021; algorithm 2.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from etils import epy

from tff_pcdd.federated.server_optimizers.server_optimizer import (
    ServerOptimizer,
    learning_rate_option,
)
from tff_pcdd.settings import option

with epy.lazy_imports():
    import tensorflow as tf


def beta1_option(default: float) -> Any:
    """The setting of β1."""
    text = "β1, decay of the server's mean change."
    return option(default, text, minimum=0, maximum=0.9999)


@dataclasses.dataclass(frozen=True)
class Adaptive(ServerOptimizer):
    """m ← β1·m + (1 - β1)·Δ, v by `_square`, w ← w + η·m/(√v + τ).

    There is no bias correction. m starts from 0 and v from τ², the smallest value that the paper
    permits.
    """

    learning_rate: float = learning_rate_option(0.01)
    beta1: float = beta1_option(0.9)
    tau: float = option(
        1e-3,
        "τ, degree of adaptivity: added to the root of the squared changes.",
        above=0,
    )

    def initial_state(self, weights):
        return {
            "mean": [tf.zeros_like(w) for w in weights],
            "square": [tf.fill(w.shape, self.tau**2) for w in weights],
        }

    def _step(self, change, state):
        mean = [
            self.beta1 * m + (1 - self.beta1) * delta
            for m, delta in zip(state["mean"], change, strict=True)
        ]
        square = [
            self._square(v, tf.square(delta))
            for v, delta in zip(state["square"], change, strict=True)
        ]
        steps = [
            self.learning_rate * m / (tf.sqrt(v) + self.tau)
            for m, v in zip(mean, square, strict=True)
        ]
        return steps, {"mean": mean, "square": square}

    def _square(self, square: tf.Tensor, change: tf.Tensor) -> tf.Tensor:
        """The new v from the old one and Δ²."""
        raise NotImplementedError


def beta2_option() -> Any:
    """The setting of β2."""
    return option(
        0.99,
        "β2, decay of the server's squared changes.",
        minimum=0,
        maximum=0.999999,
    )
