"""The mean of changes whose large tensors are sent with a few bits per entry."""

from __future__ import annotations

import dataclasses
import math

from etils import epy

from tff_pcdd.federated.aggregators.aggregator import FLOAT_BYTES, register
from tff_pcdd.federated.aggregators.bounded import BoundedAggregator
from tff_pcdd.settings import option

with epy.lazy_imports():
    import tensorflow_federated as tff


@register
@dataclasses.dataclass(frozen=True)
class Compressed(BoundedAggregator):
    """The weighted mean of quantized changes, as `tff.learning.compression_aggregator`.

    Entries are rounded stochastically to equally spaced values between the tensor's minimum and
    maximum.
    """

    name = "compressed"

    bits: int = option(8, "Bits per entry.", minimum=1, maximum=16)
    threshold: int = option(
        20000,
        "Tensors with more entries than this are compressed.",
        minimum=0,
    )

    @classmethod
    def prefix(cls) -> str:
        return "compressed_"

    def factory(self, cohort_size: int) -> tff.aggregators.WeightedAggregationFactory:
        total = tff.aggregators.EncodedSumFactory.quantize_above_threshold(
            self.bits, self.threshold
        )
        return self._bounded(tff.aggregators.MeanFactory(total, no_nan_division=True))

    def _tensor_bytes(self, size: int) -> int:
        if size <= self.threshold:
            return size * FLOAT_BYTES
        # Plus the tensor's minimum and maximum, the quantization range.
        return math.ceil(size * self.bits / 8) + 2 * FLOAT_BYTES
