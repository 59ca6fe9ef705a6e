"""The mean of changes that are zeroed if far too large and clipped if large."""

from __future__ import annotations

import dataclasses

from etils import epy

from tff_pcdd.federated.aggregators.aggregator import register
from tff_pcdd.federated.aggregators.bounded import BoundedAggregator

with epy.lazy_imports():
    import tensorflow_federated as tff


@register
@dataclasses.dataclass(frozen=True)
class Robust(BoundedAggregator):
    """The weighted mean after zeroing and clipping, as `tff.learning.robust_aggregator`."""

    name = "robust"

    def factory(self, cohort_size: int) -> tff.aggregators.WeightedAggregationFactory:
        return self._bounded(tff.aggregators.MeanFactory(no_nan_division=True))
