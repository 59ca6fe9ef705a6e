"""FedProto: prototype learning.

FedProto: Federated Prototype Learning across Heterogeneous Clients; Y. Tan, G. Long, L. Liu, T.
Zhou, Q. Lu, J. Jiang, C. Zhang; AAAI 2022.

Differs from FedAvg in that no weights travel at all. Clients send the mean feature of each of their
classes; the server sends back the mean over the clients that have the class (authors' program; the
paper's formula divides by counts twice). The local loss is cross-entropy + λ·R, where R is the mean
squared difference, over samples and dimensions, between a sample's feature and the global prototype
of its label (authors' program; the paper writes a distance); a class without a prototype adds
nothing. A new sample is given the label of the nearest global prototype (`predict`; the authors
report the head as well).

Prototypes are made in eval mode after training (the authors collect them during the last epoch) and
are kept for classes that nobody holds in a round. There is no global model: GA is the mean over
clients of the personal models' accuracies on all test samples. With λ = 0 clients learn alone.
"""

import dataclasses

from etils import epy

from tff_pcdd.methods.method import Placement, Upload, cross_entropy, register
from tff_pcdd.methods.prototypes import PrototypeMethod
from tff_pcdd.options import option

with epy.lazy_imports():
    import tensorflow as tf

    from tff_pcdd import losses


@register
@dataclasses.dataclass(frozen=True)
class FedProto(PrototypeMethod):
    """Networks of their own at all clients, which share nothing but class prototypes."""

    name = "fedproto"
    metric_names = ("distance",)
    has_global_model = False

    distance_weight: float = option(
        1.0, "λ, weight of the distance to prototypes (paper: 1; CIFAR-10: 0.1).", minimum=0
    )
    predict: str = option(
        "prototype",
        "How the personal model classifies: by the nearest global prototype, or by its head.",
        choices=("prototype", "head"),
    )

    def placement(self, part, layer):
        return Placement.PERSONAL

    def loss(self, net, batch, client):
        features = self.embed(net, batch.x, training=True)
        prototypes, valid = client.server["prototypes"], client.server["valid"]
        known = tf.cast(tf.gather(valid, batch.y), tf.float32)[:, None]
        difference = known * (features - tf.gather(prototypes, batch.y))
        distance = tf.reduce_mean(tf.square(difference))
        loss = cross_entropy(batch.y, net["head"](features)) + self.distance_weight * distance
        return loss, {"distance": distance}

    def personal_phases(self, net, epochs):
        # With the distance to prototypes, by which the model classifies.
        return self.phases(net, epochs)

    def upload(self, net, client, reduce):
        sums, state, sent = super().upload(net, client, reduce)
        means = tf.math.divide_no_nan(sums["features"], sums["counts"][:, None])
        present = tf.cast(sums["counts"] > 0, tf.float32)
        return Upload({"features": means, "counts": present}, state, sent)

    def personal_logits(self, net, x, client):
        features = self.embed(net, x, training=False)
        logits = net["head"](features)
        if self.predict == "prototype":
            prototypes, valid = client.server["prototypes"], client.server["valid"]
            distances = tf.reduce_sum(tf.square(features[:, None] - prototypes), axis=-1)
            # Before the first prototypes the head is all there is.
            nearest = losses.mask_logits(-distances, valid)
            logits = tf.where(tf.reduce_any(valid), nearest, logits)
        return logits
