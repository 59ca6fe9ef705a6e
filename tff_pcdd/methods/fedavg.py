"""FedAvg.

Communication-Efficient Learning of Deep Networks from Decentralized Data; H. B. McMahan, E. Moore,
D. Ramage, S. Hampson, B. Agüera y Arcas; AISTATS 2017.

Every default of the contract: clients train the global model on their own samples for some epochs,
and the server adds the mean of their changes, weighted by samples (Algorithm 1). Normalisation
statistics are averaged with the weights. The personal model is the global one after the client's
local epochs. To compare with FedLoGe on even terms, its realignment can be applied to this head
too.
"""

import dataclasses
from typing import ClassVar

from etils import epy

from tff_pcdd.methods.method import Method, register
from tff_pcdd.options import option

with epy.lazy_imports():
    from tff_pcdd import realignment


@register
@dataclasses.dataclass(frozen=True)
class FedAvg(Method):
    """Federated averaging."""

    name = "fedavg"
    degenerate: ClassVar = {}

    realign: bool = option(False, "Report ga_gafr, the head realigned as by FedLoGe's GA-FR, too.")

    def global_logits(self, net, x):
        features, head = self.embed(net, x, training=False), net["head"]
        logits = {"": head(features)}
        if self.realign:
            realigned = realignment.global_realign(head.kernel)
            logits["gafr"] = features @ realigned + head.bias
        return logits
