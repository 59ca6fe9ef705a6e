"""FedPAC: feature alignment and classifier collaboration.

Personalized Federated Learning with Feature Alignment and Classifier Collaboration; J. Xu, X. Tong,
S.-L. Huang; ICLR 2023.

Differs from FedAvg in the heads, which stay personal, and in the loss. A client first trains its
head on the broadcast backbone, then the backbone with that head fixed. In the second phase the loss
is cross-entropy + λ·R, where R is the mean squared difference between a sample's feature and the
global mean feature of its class. After the round, each client's head becomes a combination Σ_j α_j
φ_j of the heads of the cohort. With class shares p_{j,c} and class means μ_{j,c} of the features of
the broadcast backbone, h_{j,c} = p_{j,c} μ_{j,c} and V_j = (E‖f‖² - Σ_c ‖h_{j,c}‖²) / n_j, client
i's weights α ≥ 0, Σ_j α_j = 1, minimize

    Σ_j α_j² V_j + Σ_c ‖h_{i,c} - Σ_j α_j h_{j,c}‖²,

a quadratic program. Weights below 0.001 are set to 0. There is no global model: GA is the mean over
clients of the personal models' accuracies on all test samples.

The server's message is the same for all clients. It therefore contains the heads and the statistics
of the last cohort, which clients have sent in the rows of their `cohort_index` as in FedGen, and
each client solves its own program at the start of its next round or evaluation; the published
server solves it and sends only the result. The weights and heads are the same if all clients take
part. What differs is which data are sent, and who sees them: every client receives the heads, class
means and class shares of the others, and a secure sum does not hide them from the server.

Departures from the authors' code:
- A client that was not in the last cohort combines its own head with those of that cohort; in the
  code, it uses the heads of the cohort in which it last took part. A client that has never taken
  part keeps its initial head.
- Classes without a global mean feature have no term R; in the code, R is then the distance to the
  client's own mean before training.
- The quadratic program is solved as it is; the code drops eigenvalues below 0.01 of a matrix with
  negative ones.
- The epoch in which the head is trained counts as one of the local epochs. The features are those
  of eval mode, and the momentum and the weight decay are those of the other epochs.
"""

from __future__ import annotations

import dataclasses
from typing import ClassVar

from etils import epy

from tff_pcdd.methods._shared.combination import head_weights
from tff_pcdd.methods._shared.prototypes import AlignedMethod
from tff_pcdd.methods._shared.rows import in_own_row
from tff_pcdd.methods.contract import register
from tff_pcdd.methods.fedper import FedPer
from tff_pcdd.methods.network import Placement
from tff_pcdd.methods.records import Phase, Upload
from tff_pcdd.settings import option

with epy.lazy_imports():
    import tensorflow as tf

    from tff_pcdd import losses

_RECEIVED = "received_"


@register
@dataclasses.dataclass(frozen=True)
class FedPAC(AlignedMethod, FedPer):
    """A shared backbone aligned to class means, and personal combinations of the heads."""

    name = "fedpac"
    tuning: ClassVar = {"distance_weight": (0.1, 1.0, 10.0)}

    collaborate: bool = option(True, "Combine the clients' heads; otherwise they stay apart.")
    head_epochs: int = option(
        1,
        "Local epochs that train the head, at most all but one; the others train the backbone. "
        "With a single local epoch, each of the two has one.",
        minimum=1,
    )
    head_learning_rate: float = option(0.1, "Learning rate of the head.", above=0)

    def advice(self, optimizer):
        if optimizer.name == "sgd" or self.head_learning_rate <= 10 * optimizer.learning_rate:
            return None
        return (
            f"{self.name} with client_optimizer={optimizer.name} trains heads with "
            f"{self.name}_head_learning_rate={self.head_learning_rate:g}, a step size of its "
            f"authors for SGD; choose one near client_learning_rate={optimizer.learning_rate:g}"
        )

    def build(self, task):
        parts = super().build(task)
        if self.collaborate:
            parts[f"{_RECEIVED}backbone"] = task.backbone()
        return parts

    def placement(self, part, layer):
        return Placement.SCRATCH if part.startswith(_RECEIVED) else super().placement(part, layer)

    # The client.

    def client_state(self, net, task, seed):
        if not self.collaborate:
            return {}
        return {
            "statistics": tf.zeros([task.num_classes, task.feature_dim]),
            "variance": tf.constant(0.0),
            # The last round with samples, and the client's row in that round.
            "round": tf.constant(-1),
            "row": tf.constant(0),
        }

    def begin(self, net, client):
        net.refresh(_RECEIVED)
        if not self.collaborate:
            return
        weights, trained = self._weights(client), client.state["round"] >= 0
        others = [client.server["cohort"][name] for name in ("kernels", "biases")]
        for own, values in zip(net["head"].weights, others, strict=True):
            combined = weights[0] * own + tf.tensordot(weights[1:], values, 1)
            own.assign(tf.where(trained, combined, own))

    def _weights(self, client):
        """α of the client's own head (the first entry) and of the heads of the last cohort."""
        own, cohort = client.state, client.server["cohort"]
        rows = cohort["trained"].shape[0]
        # Not ==, which compares identities while TFF traces.
        is_own = tf.logical_and(
            tf.equal(cohort["trained"], tf.cast(own["round"] + 1, tf.float32)),
            tf.equal(own["row"], tf.range(rows)),
        )
        others = tf.logical_and(cohort["trained"] > 0, tf.logical_not(is_own))
        return head_weights(
            (own["statistics"], own["variance"]),
            (cohort["statistics"], cohort["variances"]),
            others,
        )

    def phases(self, net, epochs):
        head, head_epochs = net.personal.trainable, min(self.head_epochs, max(1, epochs - 1))
        return [
            Phase(head, head_epochs, self.head_loss, self.head_learning_rate),
            Phase(net.common, max(1, epochs - head_epochs), self.loss),
        ]

    def personal_phases(self, net, epochs):
        return self.phases(net, epochs)

    def upload(self, net, client, reduce):
        upload = super().upload(net, client, reduce)
        if not self.collaborate:
            return upload
        statistics, variance = self._statistics(net, client, reduce)
        trained = tf.reduce_sum(client.class_counts) > 0
        own = {
            "kernels": net["head"].kernel,
            "biases": net["head"].bias,
            "statistics": statistics,
            "variances": variance,
            # The number of the round, from 1; 0 in rows of clients without samples. The last cohort
            # is not always that of the round before: all of a cohort may drop out.
            "trained": tf.cast(client.round + 1, tf.float32),
        }
        # A client without samples sends nothing, like one that is excluded.
        own = {name: tf.where(trained, value, tf.zeros_like(value)) for name, value in own.items()}
        new = {
            "statistics": statistics,
            "variance": variance,
            "round": client.round,
            "row": client.cohort_index,
        }
        state = {name: tf.where(trained, new[name], client.state[name]) for name in new}
        rows = in_own_row(own, client.cohort_index, client.server["cohort"]["trained"].shape[0])
        sums = {**upload.sums, **rows}
        sent, summed = (
            sum(value.shape.num_elements() for value in part.values())
            for part in ({**upload.sums, **own}, sums)
        )
        return Upload(sums, state, sent / summed)

    def _statistics(self, net, client, reduce):
        """h [C, d] and V of the client's samples, of features of the broadcast backbone."""
        view = net.replacing(backbone=net[f"{_RECEIVED}backbone"])
        shape = client.state["statistics"].shape

        def add(totals, x, y):
            features = tf.cast(self.embed(view, x, training=False), tf.float32)
            sums, _ = losses.class_sums(features, y, shape[0])
            return totals[0] + sums, totals[1] + tf.reduce_sum(tf.square(features))

        sums, squares = reduce(add, (tf.zeros(shape), tf.constant(0.0)))
        samples = tf.reduce_sum(client.class_counts)
        statistics = tf.math.divide_no_nan(sums, samples)
        spread = tf.math.divide_no_nan(squares, samples) - tf.reduce_sum(tf.square(statistics))
        return statistics, tf.math.divide_no_nan(tf.maximum(spread, 0.0), samples)

    # The server.

    def server_state(self, net, task):
        state = super().server_state(net, task)
        if not self.collaborate:
            return state
        rows, head = task.cohort_size, net["head"]
        cohort = {
            "kernels": tf.zeros([rows, *head.kernel.shape]),
            "biases": tf.zeros([rows, *head.bias.shape]),
            "statistics": tf.zeros([rows, task.num_classes, task.feature_dim]),
            "variances": tf.zeros([rows]),
            "trained": tf.zeros([rows]),
        }
        return {**state, "cohort": cohort}

    def next_server_state(self, server, sums):
        server = super().next_server_state(server, sums)
        if self.collaborate:
            server["cohort"] = {name: sums[name] for name in server["cohort"]}
        return server
