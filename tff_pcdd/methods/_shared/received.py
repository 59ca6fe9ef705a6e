"""The received model, which a client keeps in addition to the one that it trains."""

from __future__ import annotations

import dataclasses

from etils import epy

from tff_pcdd.methods.contract import Method
from tff_pcdd.methods.network import Network, Placement, renamed

with epy.lazy_imports():
    import tensorflow as tf

_RECEIVED = "global_"


@dataclasses.dataclass(frozen=True)
class ReceivedModelMethod(Method):
    """FedAvg whose clients compare the model that they train with the one that they received."""

    @property
    def compares(self) -> bool:
        """Whether the received model is needed with these options."""
        return True

    def build(self, task):
        parts = super().build(task)
        if self.compares:
            parts |= renamed(super().build(task), _RECEIVED)
        return parts

    def placement(self, part, layer):
        return Placement.SCRATCH if part.startswith(_RECEIVED) else Placement.SHARED

    def begin(self, net, client):
        net.refresh(_RECEIVED)

    def received_logits(self, net: Network, x: tf.Tensor) -> tf.Tensor:
        """Logits [batch, C] of the received model, in eval mode."""
        return net[f"{_RECEIVED}head"](net[f"{_RECEIVED}backbone"](x, training=False))

    def received_features(self, net: Network, x: tf.Tensor) -> tf.Tensor:
        """Features [batch, d] of the received model, in eval mode, float32."""
        return tf.cast(net[f"{_RECEIVED}backbone"](x, training=False), tf.float32)

    def received_values(self, net: Network) -> dict[object, tf.Variable]:
        """The variables of the received model, by references to those that are trained."""
        return {original.ref(): copy for original, copy in net.copies(_RECEIVED)}
