"""Optimizers of local training.

    tff_pcdd.federated.client_optimizers.names()
    tff_pcdd.federated.client_optimizers.create("adam", learning_rate=1e-3)

To add one, subclass `ClientOptimizer` and decorate the class with `register`.
"""

from tff_pcdd.federated.client_optimizers.optimizer import ClientOptimizer, register, registry

names = registry.names
get = registry.get
create = registry.create

__all__ = ["ClientOptimizer", "create", "get", "names", "register", "registry"]
