"""An aggregator that wraps one of TFF's aggregation factories, for use from Python."""

from __future__ import annotations

import dataclasses
from typing import Any

from tff_pcdd.errors import SettingError
from tff_pcdd.federated.aggregators.aggregator import Aggregator, registry


@dataclasses.dataclass(frozen=True)
class TffAggregator(Aggregator):
    """Any aggregation factory of `tff.aggregators` or `tff.learning`, without a registered class.

    Attributes:
        tff_factory: the factory, weighted or unweighted.
        name: its name in results.

    Raises:
        SettingError: the name is that of a registered aggregator.

    Example:
        >>> import tensorflow_federated as tff
        >>> TffAggregator(tff.learning.robust_aggregator(), name="tff_robust").name
        'tff_robust'
    """

    tff_factory: Any
    # The names of other components are class attributes.
    name: str = dataclasses.field(default="own", kw_only=True)  # type: ignore[misc]

    def __post_init__(self):
        super().__post_init__()
        if self.name in registry.names():
            reason = "is the name of a registered aggregator; choose another name"
            raise SettingError(registry.setting, self.name, reason)

    def factory(self, cohort_size):
        return self.tff_factory
