"""FedBABU: body aggregation and body update.

FedBABU: Toward Enhanced Representation for Federated Image Classification; J. Oh, S. Kim, S.-Y.
Yun; ICLR 2022.

Differs from FedAvg in that the head keeps its random first values, the same at all clients, and
only the backbone is trained and averaged. The global model is the backbone under that head. For the
personal model the whole network is tuned at the client (`finetune`: full, as in the paper's main
results, or head, or body), over the local epochs; the authors take 5. Means are weighted by
samples, where the authors' code takes plain ones.
"""

import dataclasses

from tff_pcdd.methods.method import Method, Phase, Placement, register
from tff_pcdd.options import option


@register
@dataclasses.dataclass(frozen=True)
class FedBABU(Method):
    """FedAvg of the backbone under a head that is never trained."""

    name = "fedbabu"

    finetune: str = option(
        "full",
        "What is tuned for the personal model.",
        choices=("full", "head", "body"),
    )

    def placement(self, part, layer):
        return Placement.FIXED if part == "head" else Placement.SHARED

    def personal_phases(self, net, epochs):
        head, body = net["head"].trainable_weights, net.common
        variables = {"full": [*body, *head], "head": head, "body": body}[self.finetune]
        return [Phase(variables, epochs, self.loss)]
