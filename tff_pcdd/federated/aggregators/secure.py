"""The mean by secure summation: the server needs only sums of integers, not single changes."""

from __future__ import annotations

import dataclasses

from etils import epy

from tff_pcdd.federated.aggregators.aggregator import register
from tff_pcdd.federated.aggregators.bounded import BoundedAggregator

with epy.lazy_imports():
    import tensorflow_federated as tff

# Settings of tff.learning for the bound to which entries are clipped before they are rounded to
# integers.
_BOUND = {
    "initial_estimate": 50.0,
    "target_quantile": 0.95,
    "learning_rate": 1.0,
    "multiplier": 2.0,
}
# Weights are summed as integers from 0 to this.
_MAX_WEIGHT = float(2**20 - 1)


@register
@dataclasses.dataclass(frozen=True)
class Secure(BoundedAggregator):
    """The weighted mean from secure sums, as `tff.learning.secure_aggregator`."""

    name = "secure"

    def factory(self, cohort_size: int) -> tff.aggregators.WeightedAggregationFactory:
        del cohort_size
        return self._bounded(self._mean(), secure=True)

    def statistics_factory(self) -> tff.aggregators.WeightedAggregationFactory:
        """The mean from secure sums, without zeroing and clipping."""
        return self._mean()

    def _mean(self) -> tff.aggregators.WeightedAggregationFactory:
        bound = tff.aggregators.PrivateQuantileEstimationProcess.no_noise(
            **_BOUND, secure_estimation=True
        )
        total = tff.aggregators.SecureSumFactory(bound)
        weights = tff.aggregators.SecureSumFactory(_MAX_WEIGHT, 0.0)
        return tff.aggregators.MeanFactory(total, weights, no_nan_division=True)
