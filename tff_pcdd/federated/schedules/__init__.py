"""Schedules of the clients' step size over the rounds.

    tff_pcdd.federated.schedules.names()
    tff_pcdd.federated.schedules.create("cosine", final=0.1, warmup_rounds=5)

To add one, subclass `Schedule` and decorate the class with `register`.
"""

from tff_pcdd.federated.schedules.schedule import Schedule, register, registry

names = registry.names
get = registry.get
create = registry.create

__all__ = ["Schedule", "create", "get", "names", "register", "registry"]
