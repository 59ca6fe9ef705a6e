"""FedDyn: dynamic regularization.

Federated Learning Based on Dynamic Regularization; D. A. E. Acar, Y. Zhao, R. Matas Navarro, M.
Mattina, P. N. Whatmough, V. Saligrama; ICLR 2021.

Differs from FedAvg in the local loss and the server's step. Client k keeps a dual variable g_k of
the size of the model, minimizes f_k(θ) - ⟨g_k, θ⟩ + α/2·‖θ - w‖², and then sets g_k ← g_k - α(θ_k -
w) (algorithm 1). The server keeps h ← h - α/K·Σ(θ_k - w), where the sum is over the cohort and K is
the number of all clients, and broadcasts w = mean θ_k - h/α. Means are unweighted, as published; if
`client_weighting` is "samples", both means and the mean loss are weighted. At a fixed point every
g_k is the gradient of f_k, so that all clients agree on a stationary point of the mean loss. No
setting makes it FedAvg.

Departures from the authors' code: α is the same for all clients (the authors divide it by the
client's relative size), and gradients are clipped by the clients' optimizer only; a dual variable
can grow without bound at a client with a single class. The global model is the broadcast one; the
authors plot the mean over all clients.
"""

import dataclasses
from typing import ClassVar

from etils import epy

from tff_pcdd.methods.contract import Method, register
from tff_pcdd.methods.records import Upload
from tff_pcdd.settings import option

with epy.lazy_imports():
    import tensorflow as tf


@register
@dataclasses.dataclass(frozen=True)
class FedDyn(Method):
    """FedAvg with a dual variable at each client and a correction at the server."""

    name = "feddyn"
    published_weighting = "uniform"
    tuning: ClassVar = {"alpha": (0.001, 0.01, 0.1)}

    alpha: float = option(0.01, "α, weight of the dynamic regularizer.", above=0)

    def client_state(self, net, task, seed):
        return {"dual": [tf.zeros_like(variable) for variable in net.shared.trainable]}

    def server_state(self, net, task):
        return {
            "correction": [tf.zeros_like(variable) for variable in net.shared.trainable],
            "total_weight": self.total_weight(task),
        }

    def broadcast(self, server):
        return {}

    def loss(self, net, batch, client):
        loss, metrics = super().loss(net, batch, client)
        terms = [
            0.5 * self.alpha * tf.reduce_sum(tf.square(w - anchor)) - tf.reduce_sum(dual * w)
            for w, anchor, dual in zip(
                net.shared.trainable, client.anchor, client.state["dual"], strict=True
            )
        ]
        return loss + tf.add_n(terms), metrics

    def upload(self, net, client, reduce):
        dual = [
            dual - self.alpha * delta
            for dual, delta in zip(client.state["dual"], self.update(net, client), strict=True)
        ]
        return Upload({"weight": self.weight(client)}, {"dual": dual})

    def server_update(self, weights, change, server, sums, cohort_size):
        weight = sums["weight"]
        correction = [
            h - self.alpha * weight / server["total_weight"] * delta
            for h, delta in zip(server["correction"], change, strict=True)
        ]
        # A cohort without samples does not change the model.
        new = [
            tf.where(weight > 0, w + delta - h / self.alpha, w)
            for w, delta, h in zip(weights, change, correction, strict=True)
        ]
        return new, {**self.next_server_state(server, sums), "correction": correction}
