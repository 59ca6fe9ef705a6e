"""FedAvg.

Communication-Efficient Learning of Deep Networks from Decentralized Data; H. B. McMahan, E. Moore,
D. Ramage, S. Hampson, B. Agüera y Arcas; AISTATS 2017.

This method uses all defaults of the contract: clients train the global model on their own samples
for some epochs, and the server adds the mean of their changes, weighted by numbers of samples
(algorithm 1). Normalization statistics are averaged like weights. The personal model is the global
model after the client's local epochs. For a fair comparison with FedLoGe, FedLoGe's realignment can
also be applied to FedAvg's head.
"""

import dataclasses
from typing import ClassVar

from etils import epy

from tff_pcdd.methods.contract import Method, register
from tff_pcdd.settings import option

with epy.lazy_imports():
    import tensorflow as tf

    from tff_pcdd import realignment


@register
@dataclasses.dataclass(frozen=True)
class FedAvg(Method):
    """Federated averaging."""

    name = "fedavg"
    degenerate: ClassVar = {}

    realign: bool = option(
        False, "Also report ga_gafr, the accuracy with the head realigned by GA-FR."
    )

    def global_logits(self, net, x):
        features, head = self.embed(net, x, training=False), net["head"]
        logits = {"": head(features)}
        if self.realign:
            realigned = realignment.global_realign(head.kernel)
            # Keras cannot save a model with a variable outside of its layers.
            logits["gafr"] = features @ realigned + tf.convert_to_tensor(head.bias)
        return logits
