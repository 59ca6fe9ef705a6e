"""Federated methods: one short file each, named after its paper.

    tff_pcdd.methods.names()                             names of all methods
    tff_pcdd.methods.create("fedgela", scale=1.0)

To add a method, subclass `Method` and decorate the class with `register`: its name and options then
appear on the command line, in config.json and in comparisons.
"""

from tff_pcdd.methods.contract import Method, register, registry
from tff_pcdd.methods.head_calibration import HeadCalibration
from tff_pcdd.methods.network import (
    Network,
    Placement,
    Variables,
    cross_entropy,
    is_batch_norm,
    linear_head,
    projection,
)
from tff_pcdd.methods.records import Batch, Client, Phase, TaskSpec, Upload

names = registry.names
get = registry.get
create = registry.create

__all__ = [
    "Batch",
    "Client",
    "HeadCalibration",
    "Method",
    "Network",
    "Phase",
    "Placement",
    "TaskSpec",
    "Upload",
    "Variables",
    "create",
    "cross_entropy",
    "get",
    "is_batch_norm",
    "linear_head",
    "names",
    "projection",
    "register",
    "registry",
]
