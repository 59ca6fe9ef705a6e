"""Ditto.

Ditto: Fair and Robust Federated Learning Through Personalization; T. Li, S. Hu, A. Beirami, V.
Smith; ICML 2021.

Differs from FedAvg in a second network v_k at each client, trained on the client's loss plus
λ/2·‖v_k - w‖², where w is the broadcast global model (algorithm 1). The second network is the
personal model, without fine-tuning; it starts at the initial w. The mean over clients is unweighted
(authors' code). With client_weighting=samples the global model is that of FedAvg for every λ.

Departure from the authors' code: v_k is trained after w, each for all local epochs, whereas the
authors alternate batch by batch; neither result depends on this.
"""

import dataclasses
from typing import ClassVar

from etils import epy

from tff_pcdd.methods._shared.own_model import OWN, OwnModelMethod
from tff_pcdd.methods.contract import register
from tff_pcdd.methods.network import cross_entropy
from tff_pcdd.methods.records import Phase
from tff_pcdd.settings import option

with epy.lazy_imports():
    import tensorflow as tf


@register
@dataclasses.dataclass(frozen=True)
class Ditto(OwnModelMethod):
    """FedAvg with a second network at each client, regularized towards the global one."""

    name = "ditto"
    degenerate: ClassVar = {"client_weighting": "samples"}
    published_weighting = "uniform"
    tuning: ClassVar = {"pull": (0.1, 1.0, 2.0)}

    pull: float = option(1.0, "λ, weight of the squared distance to the global model.", minimum=0)

    def _own_loss(self, net, batch, client):
        loss = cross_entropy(batch.y, self.own_logits(net, batch.x, training=True))
        # Normalization layers that the client keeps in both networks have no anchor.
        anchors = {
            w.ref(): anchor for w, anchor in zip(net.shared.trainable, client.anchor, strict=True)
        }
        distances = [
            tf.nn.l2_loss(v - anchors[w.ref()]) for w, v in net.copies(OWN) if w.ref() in anchors
        ]
        return loss + self.pull * tf.add_n(distances), {}

    def phases(self, net, epochs):
        return [
            Phase(net.common, epochs, self.loss),
            Phase(net.personal.trainable, epochs, self._own_loss),
        ]
