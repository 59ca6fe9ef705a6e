"""Local training: every client trains alone, and nothing is sent.

Salvaging Federated Learning by Local Adaptation; T. Yu, E. Bagdasaryan, V. Shmatikov; arXiv
2002.04758, 2020. The paper compares federated models with those that clients train alone, and finds
that many clients gain nothing from a federation.

Each client keeps its whole network from round to round and trains it on its own samples, in the
rounds in which it is drawn and for the same number of epochs as in every other method. All clients
start from the same initial weights. There is no global model. The personal model is the client's
network, before and after further local epochs, as for the other methods.
"""

import dataclasses

from tff_pcdd.methods.contract import Method, register
from tff_pcdd.methods.network import Placement


@register
@dataclasses.dataclass(frozen=True)
class Local(Method):
    """Every client trains alone: a baseline for federated methods."""

    name = "local"
    baseline = True
    has_global_model = False

    def placement(self, part, layer):
        return Placement.PERSONAL
