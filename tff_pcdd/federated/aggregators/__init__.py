"""Aggregators: how the clients' changes of the shared weights are combined.

    tff_pcdd.federated.aggregators.names()
    tff_pcdd.federated.aggregators.create("dp", noise_multiplier=0.5)

They are TFF's own aggregators with the settings of `tff.learning`, except that a cohort without
samples changes nothing here, whereas `tff.learning` would divide by zero. To add one, subclass
`Aggregator` and decorate the class with `register`. From Python, `TffAggregator` wraps any of TFF's
aggregation factories.
"""

from tff_pcdd.federated.aggregators.aggregator import Aggregator, register, registry
from tff_pcdd.federated.aggregators.own import TffAggregator

names = registry.names
get = registry.get
create = registry.create

__all__ = ["Aggregator", "TffAggregator", "create", "get", "names", "register", "registry"]
