"""FedBN: local batch normalisation.

FedBN: Federated Learning on Non-IID Features via Local Batch Normalization; X. Li, M. Jiang, X.
Zhang, M. Kamp, Q. Dou; ICLR 2021.

Differs from FedAvg in that batch normalisation, scale, offset and statistics, stays at the client
(section 3). Layers are told by their type; a search for "bn" in names, as in published programs,
misses those on the shortcuts of a ResNet.

The paper has no global model. Here its normalisation is the cohorts' mean, which serves GA only and
is where a client starts that never trained; it replaces nobody's own. Uploads count it. The option
--bn=personal does the same to any other method. In a network without batch normalisation it is
FedAvg.
"""

import dataclasses

from tff_pcdd.methods.method import Method, Placement, is_batch_norm, register


@register
@dataclasses.dataclass(frozen=True)
class FedBN(Method):
    """FedAvg in which each client keeps its batch normalisation."""

    name = "fedbn"

    def placement(self, part, layer):
        return Placement.MIRRORED if is_batch_norm(layer) else Placement.SHARED
