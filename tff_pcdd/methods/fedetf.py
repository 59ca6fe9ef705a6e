"""FedETF: synthetic and fixed classifier.

No Fear of Classifier Biases: Neural Collapse Inspired Federated Learning with Synthetic and Fixed
Classifier; Z. Li, X. Shang, R. He, T. Lin, C. Wu; ICCV 2023.

Differs from FedAvg in the head. Features are projected linearly to as many dimensions as there are
classes and scaled to length 1. The classifier is a fixed simplex ETF, the same for all clients;
logits are the cosines times a temperature s, which is trained and averaged like a weight. The local
loss is the balanced softmax with the client's class counts (eq. 7), which excludes classes that the
client lacks. The global model uses the ETF without balancing.

The personal model is tuned in two stages, as in the authors' code: first the network as in a round,
with the balanced softmax, for the client's local epochs; then alternately the ETF (plain SGD with
learning rate 0.1) and the projection (the clients' SGD with 0.05) with cross-entropy, three epochs
each (section 4.3). The code runs 20 such cycles; the default here is 1 (`finetune_cycles`).
"""

import dataclasses
from typing import ClassVar

from etils import epy

from tff_pcdd.methods._shared.fixed_head import FixedHeadMethod
from tff_pcdd.methods.contract import register
from tff_pcdd.methods.network import cross_entropy
from tff_pcdd.methods.records import Phase
from tff_pcdd.settings import option

with epy.lazy_imports():
    import tensorflow as tf

    from tff_pcdd import layers, losses


@register
@dataclasses.dataclass(frozen=True)
class FedETF(FixedHeadMethod):
    """FedAvg with a fixed ETF, a trained temperature and the balanced softmax."""

    name = "fedetf"
    # The step sizes of the fine-tuning are those of SGD.
    assumes_sgd = True
    tuning: ClassVar = {"temperature": (1.0, 4.0, 16.0)}

    temperature: float = option(
        1.0, "Initial value of the temperature s, by which the cosines are multiplied.", above=0
    )
    finetune_cycles: int = option(
        1, "Cycles of fine-tuning the ETF and the projection for the personal model.", minimum=0
    )
    finetune_epochs: int = option(
        3, "Epochs of fine-tuning the ETF, and then the projection, in each cycle.", minimum=0
    )

    def build(self, task):
        return {
            "backbone": task.backbone(),
            "projection": tf.keras.layers.Dense(task.num_classes),
            "temperature": layers.Temperature(self.temperature),
            "head": _head(task),
        }

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

        cycle = [
            Phase([net["head"].etf], self.finetune_epochs, plain, learning_rate=0.1, plain=True),
            Phase(net["projection"].trainable_weights, self.finetune_epochs, plain, 0.05),
        ]
        return [*self.phases(net, epochs), *self.finetune_cycles * cycle]


def _head(task):
    head = layers.FixedETF(task.num_classes, seed=task.seed)
    head.build((None, task.num_classes))
    return head
