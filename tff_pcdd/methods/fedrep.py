"""FedRep: shared representation.

Exploiting Shared Representations for Personalized Federated Learning; L. Collins, H. Hassani, A.
Mokhtari, S. Shakkottai; ICML 2021.

Differs from FedPer in the order of local training: first the client's head on the backbone as it
came, then the backbone under that head (algorithm 1). While the head learns, the backbone is in
eval mode and its statistics stay. Of the local epochs the last `body_epochs` are the backbone's
(authors: 10 and 1). The personal model is tuned by training the head alone. Means are weighted by
samples, like everywhere here; the paper's are not.
"""

import dataclasses

from etils import epy

from tff_pcdd.methods.fedper import FedPer
from tff_pcdd.methods.method import Phase, cross_entropy, register
from tff_pcdd.options import option

with epy.lazy_imports():
    import tensorflow as tf


@register
@dataclasses.dataclass(frozen=True)
class FedRep(FedPer):
    """FedPer that trains the head first and the backbone after it."""

    name = "fedrep"

    body_epochs: int = option(
        1,
        "Of the local epochs, those of the backbone; the head has the rest, at least one.",
        minimum=0,
    )

    def _head_loss(self, net, batch, client):
        features = tf.stop_gradient(self.embed(net, batch.x, training=False))
        return cross_entropy(batch.y, net["head"](features)), {}

    def phases(self, net, epochs):
        head_epochs = max(1, epochs - self.body_epochs)
        return [
            Phase(net.personal.trainable, head_epochs, self._head_loss),
            Phase(net.common, self.body_epochs, self.loss),
        ]

    def personal_phases(self, net, epochs):
        return [Phase(net.personal.trainable, epochs, self._head_loss)]
