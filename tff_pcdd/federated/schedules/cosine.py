"""A step size that falls along a half cosine until the last planned round.

SGDR: Stochastic Gradient Descent with Warm Restarts; I. Loshchilov, F. Hutter; ICLR 2017; eq. 5,
for a single period.
"""

import dataclasses
import math

from etils import epy

from tff_pcdd.federated.schedules.schedule import Schedule, register
from tff_pcdd.settings import option

with epy.lazy_imports():
    import tensorflow as tf


@register
@dataclasses.dataclass(frozen=True)
class Cosine(Schedule):
    """final + (1 - final)·(1 + cos(π·t/(R - 1)))/2 in round t = 0, 1, … of R planned rounds.

    It is 1 in the first round and `final` in the last one. `final` cannot be 0, because personal
    models are fine-tuned with the same step size.
    """

    name = "cosine"

    final: float = option(
        0.01,
        "Share of the step size that is left in the last planned round.",
        above=0,
        maximum=1,
    )

    @property
    def needs_rounds(self):
        return True

    def _factor(self, number, num_rounds):
        progress = tf.minimum(1.0, number / max(num_rounds - 1, 1))
        return self.final + (1 - self.final) * 0.5 * (1 + tf.cos(math.pi * progress))
