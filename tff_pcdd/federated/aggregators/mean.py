"""The mean over the cohort, by the method's weights."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from etils import epy

from tff_pcdd.federated.aggregators.aggregator import Aggregator, register

with epy.lazy_imports():
    import tensorflow_federated as tff

if TYPE_CHECKING:
    from tff_pcdd.federated.upload import UploadSizes
    from tff_pcdd.methods.contract import Method


@register
@dataclasses.dataclass(frozen=True)
class Mean(Aggregator):
    """The weighted mean."""

    name = "mean"

    def factory(self, cohort_size: int) -> tff.aggregators.WeightedAggregationFactory:
        del cohort_size
        return tff.aggregators.MeanFactory(no_nan_division=True)

    def check(self, method: Method, upload: UploadSizes) -> None:
        """Accepts every method: what clients send besides their weights is summed as well."""
