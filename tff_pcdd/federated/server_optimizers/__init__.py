"""Server optimizers: how the clients' mean change moves the shared weights.

    tff_pcdd.federated.server_optimizers.names()
    tff_pcdd.federated.server_optimizers.create("fedadam", learning_rate=0.03)

To add one, subclass `ServerOptimizer` and decorate the class with `register`.
"""

from tff_pcdd.federated.server_optimizers.server_optimizer import (
    ServerOptimizer,
    register,
    registry,
)

names = registry.names
get = registry.get
create = registry.create

__all__ = ["ServerOptimizer", "create", "get", "names", "register", "registry"]
