"""The mean over the cohort, by the method's weights."""

from __future__ import annotations

import dataclasses

from etils import epy

from tff_pcdd.federated.aggregators.aggregator import Aggregator, register

with epy.lazy_imports():
    import tensorflow_federated as tff


@register
@dataclasses.dataclass(frozen=True)
class Mean(Aggregator):
    """The weighted mean."""

    name = "mean"
    accepts_all = True

    def factory(self, cohort_size: int) -> tff.aggregators.WeightedAggregationFactory:
        return tff.aggregators.MeanFactory(no_nan_division=True)
