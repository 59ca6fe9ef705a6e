"""FedRep: shared representation.

Exploiting Shared Representations for Personalized Federated Learning; L. Collins, H. Hassani, A.
Mokhtari, S. Shakkottai; ICML 2021.

Differs from FedPer in the order of local training: first the client's head is trained on the
broadcast backbone, then the backbone with that head fixed (algorithm 1). While the head is trained,
the backbone is in eval mode and its statistics do not change. The last `body_epochs` of the local
epochs train the backbone (authors: 10 epochs for the head, 1 for the backbone). For the personal
model only the head is fine-tuned. The mean over clients is unweighted.
"""

import dataclasses
from typing import ClassVar

from tff_pcdd.methods.contract import register
from tff_pcdd.methods.fedper import FedPer
from tff_pcdd.methods.records import Phase
from tff_pcdd.settings import option


@register
@dataclasses.dataclass(frozen=True)
class FedRep(FedPer):
    """FedPer that trains the head before the backbone."""

    name = "fedrep"
    published_weighting = "uniform"
    tuning: ClassVar = {"body_epochs": (1, 2, 4)}

    body_epochs: int = option(
        1,
        "Local epochs that train the backbone, at most all but one; the others train the head. "
        "With a single local epoch, each of the two has one.",
        minimum=0,
    )

    def phases(self, net, epochs):
        body_epochs = min(self.body_epochs, max(1, epochs - 1))
        head_epochs = max(1, epochs - body_epochs)
        return [
            Phase(net.personal.trainable, head_epochs, self.head_loss),
            Phase(net.common, body_epochs, self.loss),
        ]

    def personal_phases(self, net, epochs):
        return [Phase(net.personal.trainable, epochs, self.head_loss)]
