"""FedProto: prototype learning.

FedProto: Federated Prototype Learning across Heterogeneous Clients; Y. Tan, G. Long, L. Liu, T.
Zhou, Q. Lu, J. Jiang, C. Zhang; AAAI 2022.

Differs from FedAvg in that no weights are sent. Clients send the mean feature of each of their
classes, and the server returns the mean over the clients that have the class. The local loss is
cross-entropy + λ·R, where R is the mean squared difference between a sample's feature and the
global prototype of its class, zero if there is none. The prediction is the class of the nearest
global prototype among the client's own classes, as in the authors' code (`candidates`), or that of
the head (`predict`; the authors report both). With λ = 0 clients learn alone.

There is no global model: GA is the mean over clients of the personal models' accuracies on all test
samples. With candidates=own a client never predicts a class that it lacks. GA is therefore at most
the share of the test samples that belong to a client's own classes, averaged over clients, and PA
is the same with and without masking of missing classes. With candidates=all, the prototypes of
missing classes are compared, too.

Where the paper and its code differ, this follows the code: the mean over clients (the paper's
formula divides by counts twice), and the squared difference, averaged over samples and dimensions
(the paper writes a distance).

Departures from the code: prototypes are computed in eval mode after training, not during the last
epoch, and a class that no client has in a round keeps its previous prototype.
"""

import dataclasses
from typing import ClassVar

from etils import epy

from tff_pcdd.methods._shared.prototypes import AlignedMethod
from tff_pcdd.methods.contract import register
from tff_pcdd.methods.network import Placement
from tff_pcdd.methods.records import Upload
from tff_pcdd.settings import option

with epy.lazy_imports():
    import tensorflow as tf

    from tff_pcdd import losses


@register
@dataclasses.dataclass(frozen=True)
class FedProto(AlignedMethod):
    """Each client has a network of its own; only class prototypes are shared."""

    name = "fedproto"
    has_global_model = False
    published_weighting = "uniform"
    tuning: ClassVar = {"distance_weight": (0.1, 1.0, 4.0)}

    distance_weight: float = option(
        1.0, "λ, weight of the distance to prototypes (paper: 1; CIFAR-10: 0.1).", minimum=0
    )
    predict: str = option(
        "prototype",
        "Classifier of the personal model: the nearest global prototype, or its head.",
        choices=("prototype", "head"),
    )
    candidates: str = option(
        "own",
        "Classes whose prototypes are compared: the client's own, or all that have a prototype.",
        choices=("own", "all"),
    )

    def placement(self, part, layer):
        return Placement.PERSONAL

    def personal_phases(self, net, epochs):
        # Includes the distance to prototypes, because the model classifies by it.
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
            if self.candidates == "own":
                valid = tf.logical_and(valid, client.class_counts > 0)
            # Until there are prototypes, the head is used.
            nearest = losses.mask_logits(-distances, valid)
            logits = tf.where(tf.reduce_any(valid), nearest, logits)
        return logits
