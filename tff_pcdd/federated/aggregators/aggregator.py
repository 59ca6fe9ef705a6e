"""The base class of aggregators, and their registry."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from etils import epy

from tff_pcdd.errors import SettingError
from tff_pcdd.methods.calibrated import alternative
from tff_pcdd.registry import Component, Registry

with epy.lazy_imports():
    import tensorflow_federated as tff

if TYPE_CHECKING:
    from tff_pcdd.federated.upload import UploadSizes
    from tff_pcdd.methods.contract import Method

FLOAT_BYTES = 4


@dataclasses.dataclass(frozen=True)
class Aggregator(Component):
    """Combines the clients' changes of the trainable variables; subclasses implement `factory`.

    Attributes:
        equal_weights: whether all clients have the same weight, whatever the method's weights are.
        accepts_all: whether it suits every method, because all that clients send is added up as it
            adds up their changes; `check` is not called then.
        uniform_cohorts: whether what it promises holds only for cohorts that are drawn uniformly.
    """

    equal_weights: ClassVar[bool] = False
    accepts_all: ClassVar[bool] = False
    uniform_cohorts: ClassVar[bool] = False

    def factory(
        self, cohort_size: int
    ) -> tff.aggregators.WeightedAggregationFactory | tff.aggregators.UnweightedAggregationFactory:
        """TFF's aggregation factory, for the expected number of clients in a round.

        Raises:
            SettingError: the settings cannot be used with a cohort of this size.
        """
        raise NotImplementedError

    def checked_factory(
        self, cohort_size: int
    ) -> tff.aggregators.WeightedAggregationFactory | tff.aggregators.UnweightedAggregationFactory:
        """What `factory` returns, which may be that of a user's own aggregator.

        Raises:
            SettingError: it is no factory of TFF, or as `factory`.
        """
        factory = self.factory(cohort_size)
        weighted = tff.aggregators.WeightedAggregationFactory
        if not isinstance(factory, (weighted, tff.aggregators.UnweightedAggregationFactory)):
            reason = f"its factory has returned {factory!r:.80}, not an aggregation factory of TFF"
            raise SettingError(registry.setting, self.name, reason)
        return factory

    def statistics_factory(self) -> tff.aggregators.WeightedAggregationFactory:
        """The factory for normalization statistics, which are averaged apart: a weighted mean.

        Their changes have another scale than those of the weights. A common norm would be theirs,
        and its clip would shorten the weights' step.
        """
        return tff.aggregators.MeanFactory(no_nan_division=True)

    def check(self, method: Method, upload: UploadSizes) -> None:
        """Refuses methods if this aggregator cannot aggregate all that their clients send.

        Raises:
            SettingError: clients send no change of the weights, or they send other tensors too.
        """
        instead = f"choose {registry.setting}=mean or another method"
        if method.pools_samples:
            reason = f"{method.name} trains on all samples in one place; nothing is aggregated"
            raise SettingError(registry.setting, self.name, f"{reason}; {instead}")
        if not upload.trainable:
            reason = f"clients of {method.name} send no weights"
            raise SettingError(registry.setting, self.name, f"{reason}; {instead}")
        if upload.sums:
            # With a head calibration, the method's own tensors have longer names.
            name_of = getattr(method, "piece_of", str)
            sent = sorted({name_of(name) for name in upload.sums})
            other = alternative(method, lambda _: sent == list(upload.sums))
            raise SettingError(
                registry.setting,
                self.name,
                f"clients of {method.name} also send {', '.join(sent)}, which would not be "
                f"aggregated this way; choose {registry.setting}=mean or {other}",
                kind="not all that clients send would be aggregated",
            )

    def check_cohort(self, cohort_size: int) -> None:
        """Refuses sizes of cohorts that the aggregator cannot be used with; by default none."""

    def upload_bytes(self, sizes: Sequence[int]) -> int:
        """Bytes that a client sends as the change of its trainable variables.

        Args:
            sizes: number of entries of each tensor.
        """
        return sum(self._tensor_bytes(size) for size in sizes)

    def privacy(self, num_clients: int, cohort_size: int, rounds: int) -> dict[str, Any]:
        """The privacy guarantee of the shared weights, for the summary of a run.

        Args:
            num_clients: clients of the federation.
            cohort_size: clients in a round.
            rounds: rounds that have been computed.

        Returns:
            Numbers by name; empty without a guarantee.
        """
        return {}

    def _tensor_bytes(self, size: int) -> int:
        """Bytes of a tensor with `size` entries."""
        return size * FLOAT_BYTES


registry: Registry[Aggregator] = Registry("aggregator", "tff_pcdd.federated.aggregators")
register = registry.register
