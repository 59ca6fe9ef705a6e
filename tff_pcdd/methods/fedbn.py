"""FedBN: local batch normalization.

FedBN: Federated Learning on Non-IID Features via Local Batch Normalization; X. Li, M. Jiang, X.
Zhang, M. Kamp, Q. Dou; ICLR 2021.

Differs from FedAvg in that each client keeps its batch normalization: scale, offset and statistics
(section 3). Layers are recognized by their type; a search for "bn" in names, as in published code,
misses those on the shortcuts of a ResNet. The mean over clients is unweighted, as in the authors'
runs; in a network without batch normalization and with client_weighting=samples it is FedAvg.

Departure from the paper, which has no global model: clients upload their normalization as well, and
the server computes the cohort's mean of it. The mean is used to measure GA and to initialize
clients that have never trained; it does not replace what a client keeps. The setting bn=personal
does the same for any other method.
"""

import dataclasses

from tff_pcdd.methods.contract import Method, register
from tff_pcdd.methods.network import Placement, is_batch_norm


@register
@dataclasses.dataclass(frozen=True)
class FedBN(Method):
    """FedAvg in which each client keeps its batch normalization."""

    name = "fedbn"
    published_weighting = "uniform"

    def placement(self, part, layer):
        return Placement.MIRRORED if is_batch_norm(layer) else Placement.SHARED
