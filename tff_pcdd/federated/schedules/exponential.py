"""A step size that decays by the same factor in every round."""

import dataclasses

from etils import epy

from tff_pcdd.federated.schedules.schedule import Schedule, register
from tff_pcdd.settings import option

with epy.lazy_imports():
    import tensorflow as tf


@register
@dataclasses.dataclass(frozen=True)
class Exponential(Schedule):
    """decay^t in round t = 0, 1, …, as in the code of FedDC."""

    name = "exponential"

    decay: float = option(0.998, "Factor of the step size from round to round.", above=0, maximum=1)

    def _factor(self, number, num_rounds):
        return tf.pow(self.decay, number)
