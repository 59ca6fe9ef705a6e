"""FedBABU: body aggregation and body update.

FedBABU: Toward Enhanced Representation for Federated Image Classification; J. Oh, S. Kim, S.-Y.
Yun; ICLR 2022.

Differs from FedAvg in that the head keeps its random initial values, the same at all clients, and
only the backbone is trained and averaged. The global model is the backbone with that head. For the
personal model, the client fine-tunes the whole network (`finetune=full`, the paper's main results),
only the head or only the backbone, for as many epochs as in training; the authors use 5. The mean
over clients is unweighted, as in the authors' code.
"""

import dataclasses

from tff_pcdd.methods._shared.fixed_head import FixedHeadMethod
from tff_pcdd.methods.contract import register
from tff_pcdd.methods.records import Phase
from tff_pcdd.settings import option


@register
@dataclasses.dataclass(frozen=True)
class FedBABU(FixedHeadMethod):
    """FedAvg of the backbone, with a head that is never trained."""

    name = "fedbabu"
    published_weighting = "uniform"

    finetune: str = option(
        "full",
        "Part of the network that is fine-tuned for the personal model.",
        choices=("full", "head", "body"),
    )

    def personal_phases(self, net, epochs):
        head, body = net["head"].trainable_weights, net.common
        variables = {"full": [*body, *head], "head": head, "body": body}[self.finetune]
        return [Phase(variables, epochs, self.loss)]
