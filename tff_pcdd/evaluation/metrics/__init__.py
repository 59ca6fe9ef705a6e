"""Metrics of a model that are reported in addition to its accuracy.

    tff_pcdd.evaluation.metrics.names()
    tff_pcdd.evaluation.metrics.create("worst_class").measure(correct, total)

To add a metric, subclass `Metric` and decorate the class with `register`.
"""

from tff_pcdd.evaluation.metrics.metric import Metric, register, registry

names = registry.names
get = registry.get
create = registry.create

__all__ = ["Metric", "create", "get", "names", "register", "registry"]
