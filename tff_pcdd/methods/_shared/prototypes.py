"""Class prototypes: mean features of each class, sent by clients and merged by the server."""

from __future__ import annotations

import dataclasses

from etils import epy

from tff_pcdd.methods.contract import Method
from tff_pcdd.methods.network import cross_entropy
from tff_pcdd.settings import option

with epy.lazy_imports():
    import tensorflow as tf

    from tff_pcdd import losses


@dataclasses.dataclass(frozen=True)
class PrototypeMethod(Method):
    """Global prototypes [C, d] at the server, and a mask `valid` [C] of the existing ones.

    They are added to FedAvg, or to the method that is the next base class.

    After training, a client computes features of its samples in eval mode and sends their sum and
    number for each class. The server's prototype is the mean over all samples of the cohort; a
    class that no client of the cohort has keeps its previous prototype.
    """

    def server_state(self, net, task):
        # As wide as the features that `embed` returns, which the head receives.
        width, num_classes = net["head"].kernel.shape
        return {
            **super().server_state(net, task),
            "prototypes": tf.zeros([num_classes, width]),
            "valid": tf.zeros([num_classes], tf.bool),
        }

    def broadcast(self, server):
        prototypes = {name: server[name] for name in ("prototypes", "valid")}
        return {**super().broadcast(server), **prototypes}

    def upload(self, net, client, reduce):
        shape = client.server["prototypes"].shape
        upload = super().upload(net, client, reduce)

        def add(totals, x, y):
            sums, counts = losses.class_sums(self.embed(net, x, training=False), y, shape[0])
            return totals[0] + sums, totals[1] + counts

        sums, counts = reduce(add, (tf.zeros(shape), tf.zeros(shape[:1])))
        return upload._replace(sums={**upload.sums, "features": sums, "counts": counts})

    def next_server_state(self, server, sums):
        server = super().next_server_state(server, sums)
        prototypes, valid = losses.merge_prototypes(
            sums["features"], sums["counts"], server["prototypes"], server["valid"]
        )
        return {**server, "prototypes": prototypes, "valid": valid}


@dataclasses.dataclass(frozen=True)
class AlignedMethod(PrototypeMethod):
    """Pulls features to the prototypes of their classes: the loss is cross-entropy + λ·R.

    R is the mean over samples and dimensions of the squared difference between a feature and the
    prototype of its class. Samples of classes without a prototype count as 0.
    """

    metric_names = ("distance",)

    distance_weight: float = option(1.0, "λ, weight of the distance to prototypes.", minimum=0)

    def loss(self, net, batch, client):
        features = self.embed(net, batch.x, training=True)
        prototypes, valid = client.server["prototypes"], client.server["valid"]
        known = tf.cast(tf.gather(valid, batch.y), tf.float32)[:, None]
        differences = known * (features - tf.gather(prototypes, batch.y))
        distance = tf.reduce_mean(tf.square(differences))
        loss = cross_entropy(batch.y, net["head"](features)) + self.distance_weight * distance
        return loss, {"distance": distance}
