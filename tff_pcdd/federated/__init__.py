"""Federated computations of any method: `build_process(learning)` gives TFF computations."""

from tff_pcdd.federated.aggregators import Aggregation
from tff_pcdd.federated.optimizer import SGD
from tff_pcdd.federated.personalization import build_personalization
from tff_pcdd.federated.process import FederatedProcess, build_process
from tff_pcdd.federated.programs import Learning

__all__ = [
    "SGD",
    "Aggregation",
    "FederatedProcess",
    "Learning",
    "build_personalization",
    "build_process",
]
