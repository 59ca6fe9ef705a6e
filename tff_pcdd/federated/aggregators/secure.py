"""The mean by secure summation: the server needs only sums of integers, not single changes."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

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
# Statistics may change by more than weights, and each change is multiplied by the client's samples.
# The first bound, twice this, is a change of 26 at a client of 10,000 samples, and 32 bits still
# count in steps of 0.0001. It follows the changes, too.
_BOUND_OF_STATISTICS = {**_BOUND, "initial_estimate": float(2**17)}
# Weights are summed as integers from 0 to this.
_MAX_WEIGHT = float(2**20 - 1)


@register
@dataclasses.dataclass(frozen=True)
class Secure(BoundedAggregator):
    """The weighted mean from secure sums, as `tff.learning.secure_aggregator`."""

    name = "secure"

    def factory(self, cohort_size: int) -> tff.aggregators.WeightedAggregationFactory:
        return self._bounded(_mean(_BOUND), secure=True)

    def statistics_factory(self) -> tff.aggregators.WeightedAggregationFactory:
        """The mean from secure sums, without zeroing and clipping."""
        return _mean(_BOUND_OF_STATISTICS)


def _mean(bound: Mapping[str, float]) -> tff.aggregators.WeightedAggregationFactory:
    estimate = tff.aggregators.PrivateQuantileEstimationProcess.no_noise
    total = tff.aggregators.SecureSumFactory(estimate(**bound, secure_estimation=True))
    weights = tff.aggregators.SecureSumFactory(_MAX_WEIGHT, 0.0)
    return tff.aggregators.MeanFactory(total, weights, no_nan_division=True)
