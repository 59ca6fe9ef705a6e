"""Class prototypes: mean features of each class, which clients send and the server merges."""

from __future__ import annotations

import dataclasses

from etils import epy

from tff_pcdd.methods.method import Method, Upload

with epy.lazy_imports():
    import tensorflow as tf

    from tff_pcdd import losses


@dataclasses.dataclass(frozen=True)
class PrototypeMethod(Method):
    """FedAvg with global prototypes [C, d] at the server, and which of them are `valid` yet.

    After training a client passes over its samples in eval mode and sends the sum of the features
    of each class with their number. The server's prototype is their quotient over the cohort, the
    mean over samples; a class that nobody held keeps its last one.
    """

    def prototype_dim(self, task) -> int:
        """Width of a prototype, which is that of what `embed` gives."""
        return task.feature_dim

    def server_state(self, net, task):
        return {
            "prototypes": tf.zeros([task.num_classes, self.prototype_dim(task)]),
            "valid": tf.zeros([task.num_classes], tf.bool),
        }

    def upload(self, net, client, reduce):
        shape = client.server["prototypes"].shape

        def add(totals, x, y):
            sums, counts = losses.class_sums(self.embed(net, x, training=False), y, shape[0])
            return totals[0] + sums, totals[1] + counts

        sums, counts = reduce(add, (tf.zeros(shape), tf.zeros(shape[:1])))
        return Upload({"features": sums, "counts": counts}, client.state)

    def server_update(self, weights, change, server, sums, cohort_size):
        weights, _ = super().server_update(weights, change, server, sums, cohort_size)
        prototypes, valid = losses.merge_prototypes(
            sums["features"], sums["counts"], server["prototypes"], server["valid"]
        )
        return weights, {"prototypes": prototypes, "valid": valid}
