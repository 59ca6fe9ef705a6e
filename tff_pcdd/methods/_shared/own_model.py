"""A second model at each client, in addition to the one that all clients train together."""

from __future__ import annotations

import dataclasses

from etils import epy

from tff_pcdd.methods.contract import Method
from tff_pcdd.methods.network import Network, Placement, renamed

with epy.lazy_imports():
    import tensorflow as tf

OWN = "own_"


@dataclasses.dataclass(frozen=True)
class OwnModelMethod(Method):
    """FedAvg whose clients have a second model of their own, which is their personal model.

    It consists of the pieces `own_backbone` and `own_head`, which the client keeps between rounds,
    and starts at the initial global model. It is evaluated as it is, without fine-tuning.
    """

    def build(self, task):
        return {**super().build(task), **renamed(super().build(task), OWN)}

    def placement(self, part, layer):
        return Placement.PERSONAL if part.startswith(OWN) else super().placement(part, layer)

    def initial_personal(self, net, seed):
        return net.initial_personal(OWN)

    def trained_pairs(self, net: Network) -> list[tuple[tf.Variable, tf.Variable]]:
        """Pairs of a trained variable of the global model and the same one of the client's own."""
        trained = {variable.ref() for variable in net.common}
        return [(w, own) for w, own in net.copies(OWN) if w.ref() in trained]

    def own_logits(self, net: Network, x: tf.Tensor, training: bool) -> tf.Tensor:
        """Logits [batch, C] of the client's own model."""
        return net[f"{OWN}head"](net[f"{OWN}backbone"](x, training=training))

    def personal_logits(self, net, x, client):
        return self.own_logits(net, x, training=False)

    def personal_phases(self, net, epochs):
        return []
