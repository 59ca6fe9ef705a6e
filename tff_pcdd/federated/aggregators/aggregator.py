"""The base class of aggregators, and their registry."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, ClassVar

from etils import epy

from tff_pcdd.errors import SettingError
from tff_pcdd.registry import Component, Registry

# Listing aggregators and their options must not import TensorFlow Federated.
with epy.lazy_imports():
    import tensorflow_federated as tff

FLOAT_BYTES = 4
GROUP = "Aggregation"


@dataclasses.dataclass(frozen=True)
class Aggregator(Component):
    """Combines the clients' changes of the shared weights; subclasses implement `factory`.

    Attributes:
        equal_weights: whether all clients have the same weight, whatever the method's weights are.
    """

    equal_weights: ClassVar[bool] = False

    def factory(
        self, cohort_size: int
    ) -> tff.aggregators.WeightedAggregationFactory | tff.aggregators.UnweightedAggregationFactory:
        """TFF's aggregation factory.

        Args:
            cohort_size: expected number of clients in a round.

        Raises:
            SettingError: the settings cannot be used with a cohort of this size.
        """
        raise NotImplementedError

    def check(
        self, method_name: str, update_sizes: Sequence[int], sum_names: Sequence[str]
    ) -> None:
        """Refuses methods if this aggregator cannot aggregate all that their clients upload.

        Args:
            method_name: name of the method.
            update_sizes: number of entries of each tensor in the change of the shared weights.
            sum_names: names of the other tensors that clients send, which are summed without the
                aggregator.

        Raises:
            SettingError: clients send no change of the weights, or they send other tensors too.
        """
        if not update_sizes:
            raise SettingError(
                registry.setting, self.name, f"clients of {method_name} send no weights"
            )
        if sum_names:
            raise SettingError(
                registry.setting,
                self.name,
                f"clients of {method_name} also send {', '.join(sum_names)}, which would not be "
                f"aggregated this way; choose {registry.setting}=mean or another method",
            )

    def upload_bytes(self, sizes: Sequence[int]) -> int:
        """Bytes that a client sends as the change of its weights.

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
        del num_clients, cohort_size, rounds
        return {}

    def _tensor_bytes(self, size: int) -> int:
        """Bytes of a tensor with `size` entries."""
        return size * FLOAT_BYTES


registry: Registry[Aggregator] = Registry("aggregator", "tff_pcdd.federated.aggregators")
register = registry.register
