"""Zeroing and clipping of the clients' changes, which several aggregators share."""

from __future__ import annotations

import dataclasses
import math

from etils import epy

from tff_pcdd.federated.aggregators.aggregator import Aggregator
from tff_pcdd.settings import option

with epy.lazy_imports():
    import tensorflow_federated as tff

# Settings of tff.learning. A change becomes zero if its largest entry exceeds a threshold: twice
# the estimated 0.98 quantile of the largest entries, plus 1. The first estimate is 10, so the first
# threshold is 21.
_ZEROING = {
    "initial_estimate": 10.0,
    "target_quantile": 0.98,
    "learning_rate": math.log(10.0),
    "multiplier": 2.0,
    "increment": 1.0,
}
# The L2 norm to which changes are clipped.
_CLIPPING = {"initial_estimate": 1.0, "target_quantile": 0.8, "learning_rate": 0.2}


@dataclasses.dataclass(frozen=True)
class BoundedAggregator(Aggregator):
    """An aggregator of changes that are zeroed and clipped first."""

    zeroing: bool = option(
        True,
        "Set a change to zero if one of its entries is far larger than usual.",
        setting="aggregator_zeroing",
    )
    clipping: bool = option(
        True,
        "Clip changes to an L2 norm that four out of five changes do not exceed.",
        setting="aggregator_clipping",
    )

    def _bounded(
        self, inner: tff.aggregators.WeightedAggregationFactory, *, secure: bool = False
    ) -> tff.aggregators.WeightedAggregationFactory:
        """Zeroing, then clipping, before `inner`; if `secure`, norms and counts are secure sums."""
        estimate = tff.aggregators.PrivateQuantileEstimationProcess.no_noise
        count = tff.aggregators.SecureSumFactory(1, 0) if secure else None
        if self.clipping:
            norm = estimate(**_CLIPPING, secure_estimation=secure)
            inner = tff.aggregators.clipping_factory(norm, inner, clipped_count_sum_factory=count)
        if self.zeroing:
            norm = estimate(**_ZEROING, secure_estimation=secure)
            inner = tff.aggregators.zeroing_factory(norm, inner, zeroed_count_sum_factory=count)
        return inner
