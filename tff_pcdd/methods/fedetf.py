"""FedETF: synthetic and fixed classifier.

No Fear of Classifier Biases: Neural Collapse Inspired Federated Learning with Synthetic and Fixed
Classifier; Z. Li, X. Shang, R. He, T. Lin, C. Wu; ICCV 2023.

Differs from FedAvg in the head. Features pass a linear projection to as many dimensions as there
are classes and are brought to length 1; the classifier is a simplex ETF, the same for all, and
logits are s times the cosines, where the temperature s is trained and averaged like a weight. The
local loss is the balanced softmax with the client's counts (eq. 7), in which a class that the
client lacks has no part. The global model has the plain ETF.

For the personal model the client tunes the network by plain cross-entropy over its local epochs,
and then in turns the ETF (rate 0.1) and the projection (0.05), three epochs each (section 4.3; 20
turns in the authors' program, 1 here, see `finetune_cycles`).
"""

import dataclasses

from etils import epy

from tff_pcdd.methods.method import Method, Phase, Placement, cross_entropy, register
from tff_pcdd.options import option

with epy.lazy_imports():
    import tensorflow as tf

    from tff_pcdd import layers, losses


@register
@dataclasses.dataclass(frozen=True)
class FedETF(Method):
    """FedAvg with a fixed ETF, a trained temperature and the balanced softmax."""

    name = "fedetf"

    temperature: float = option(1.0, "s at the start.", above=0)
    finetune_cycles: int = option(
        1, "Turns of tuning ETF and projection for the personal model.", minimum=0
    )
    finetune_epochs: int = option(3, "Epochs of each half of a turn.", minimum=0)

    def build(self, task):
        return {
            "backbone": task.backbone(),
            "projection": tf.keras.layers.Dense(task.num_classes),
            "temperature": layers.Temperature(self.temperature),
            "head": _head(task),
        }

    def placement(self, part, layer):
        return Placement.FIXED if part == "head" else Placement.SHARED

    def embed(self, net, x, training):
        return net["projection"](net["backbone"](x, training=training))

    def _logits(self, net, x, training):
        return net["temperature"](net["head"](self.embed(net, x, training)))

    def loss(self, net, batch, client):
        logits = self._logits(net, batch.x, training=True)
        return cross_entropy(batch.y, losses.balanced_logits(logits, client.class_counts)), {}

    def global_logits(self, net, x):
        return {"": self._logits(net, x, training=False)}

    def personal_phases(self, net, epochs):
        def plain(net, batch, client):
            return cross_entropy(batch.y, self._logits(net, batch.x, training=True)), {}

        turn = [
            Phase([net["head"].etf], self.finetune_epochs, plain, learning_rate=0.1),
            Phase(net["projection"].trainable_weights, self.finetune_epochs, plain, 0.05),
        ]
        return [Phase(net.trainable, epochs, plain), *self.finetune_cycles * turn]


def _head(task):
    head = layers.FixedETF(task.num_classes, seed=task.seed)
    head.build((None, task.num_classes))
    return head
