"""FedAvg.

Communication-Efficient Learning of Deep Networks from Decentralized Data; H. B. McMahan, E. Moore,
D. Ramage, S. Hampson, B. Agüera y Arcas; AISTATS 2017.

Every default of the contract: clients train the global model on their own samples for some epochs,
and the server adds the mean of their changes, weighted by samples (Algorithm 1). Normalisation
statistics are averaged with the weights. The personal model is the global one after the client's
local epochs.
"""

import dataclasses
from typing import ClassVar

from tff_pcdd.methods.method import Method, register


@register
@dataclasses.dataclass(frozen=True)
class FedAvg(Method):
    """Federated averaging."""

    name = "fedavg"
    degenerate: ClassVar = {}
