"""Optimizers of local training.

    tff_pcdd.federated.client_optimizers.names()
    tff_pcdd.federated.client_optimizers.create("adam", learning_rate=1e-3)

To add one, subclass `ClientOptimizer` and decorate the class with `register`; the settings that all
of them have are `learning_rate_option(default)`, `weight_decay_option()` and `clip_norm_option()`.
"""

from tff_pcdd.federated.client_optimizers.optimizer import (
    ClientOptimizer,
    clip_norm_option,
    learning_rate_option,
    register,
    registry,
    weight_decay_option,
)

names = registry.names
get = registry.get
create = registry.create

__all__ = [
    "ClientOptimizer",
    "clip_norm_option",
    "create",
    "get",
    "learning_rate_option",
    "names",
    "register",
    "registry",
    "weight_decay_option",
]
