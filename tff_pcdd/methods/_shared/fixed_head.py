"""A head that is never trained, the same at all clients."""

from __future__ import annotations

import dataclasses

from tff_pcdd.methods.contract import Method
from tff_pcdd.methods.network import Placement


@dataclasses.dataclass(frozen=True)
class FixedHeadMethod(Method):
    """FedAvg of everything but the head, which keeps its initial values."""

    @property
    def fixed_head(self):
        return "has a fixed head"

    def placement(self, part, layer):
        return Placement.FIXED if part == "head" else Placement.SHARED
