"""FedPer: personalization layers.

Federated Learning with Personalization Layers; M. G. Arivazhagan, V. Aggarwal, A. K. Singh, S.
Choudhary; arXiv:1912.00818, 2019.

Differs from FedAvg in that each client keeps its head, which it trains together with the shared
backbone. The personal model is the shared backbone with the client's head. There is no global
model: GA is the mean over clients of the personal models' accuracies on all test samples.

The paper has one to four personal blocks; here only the classifier is personal, as in most
comparisons.
"""

import dataclasses

from etils import epy

from tff_pcdd.methods.contract import Method, register
from tff_pcdd.methods.network import Placement, cross_entropy

with epy.lazy_imports():
    import tensorflow as tf


@register
@dataclasses.dataclass(frozen=True)
class FedPer(Method):
    """FedAvg of the backbone, with a personal head at each client."""

    name = "fedper"
    has_global_model = False

    def placement(self, part, layer):
        return Placement.PERSONAL if part == "head" else Placement.SHARED

    def head_loss(self, net, batch, client):
        """The loss of a stage that trains the head only, on the backbone in eval mode."""
        features = tf.stop_gradient(self.embed(net, batch.x, training=False))
        return cross_entropy(batch.y, net["head"](features)), {}
