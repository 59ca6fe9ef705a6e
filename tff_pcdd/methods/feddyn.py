"""FedDyn: dynamic regularisation.

Federated Learning Based on Dynamic Regularization; D. A. E. Acar, Y. Zhao, R. Matas Navarro, M.
Mattina, P. N. Whatmough, V. Saligrama; ICLR 2021.

Differs from FedAvg in the local loss and the server's step. Client k keeps a dual g_k, the size of
the model, and minimises f_k(θ) - ⟨g_k, θ⟩ + α/2·‖θ - w‖², then sets g_k ← g_k - α(θ_k - w)
(algorithm 1). The server keeps h ← h - α/K·Σ(θ_k - w) over the cohort, K being all clients, and
sends w = mean θ_k - h/α. Means are unweighted. At a fixed point every g_k is the gradient of f_k,
so that all clients agree on a stationary point of the mean loss.

Departures: one α for all clients (the authors' code divides it by the client's relative size), and
no clipping of its own (--client_clip_norm clips; a dual can grow without bound at a client with one
class). The global model is the one that is sent, where the authors plot the mean over all clients.
There is no setting in which it is FedAvg.
"""

import dataclasses

from etils import epy

from tff_pcdd.methods.method import Method, Upload, register
from tff_pcdd.options import option

with epy.lazy_imports():
    import tensorflow as tf


@register
@dataclasses.dataclass(frozen=True)
class FedDyn(Method):
    """FedAvg with a dual at each client and a correction at the server."""

    name = "feddyn"

    alpha: float = option(0.01, "α, weight of the dynamic regulariser.", above=0)

    def client_state(self, net, task, seed):
        return {"dual": [tf.zeros_like(variable) for variable in net.shared.trainable]}

    def server_state(self, net, task):
        return {
            "correction": [tf.zeros_like(variable) for variable in net.shared.trainable],
            "clients": tf.constant(float(len(task.class_counts))),
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

    def weight(self, client):
        return tf.cast(tf.reduce_sum(client.class_counts) > 0, tf.float32)

    def upload(self, net, client, reduce):
        dual = [
            dual - self.alpha * delta
            for dual, delta in zip(client.state["dual"], self.update(net, client), strict=True)
        ]
        return Upload({"clients": self.weight(client)}, {"dual": dual})

    def server_update(self, weights, change, server, sums, cohort_size):
        present = sums["clients"]
        correction = [
            h - self.alpha * present / server["clients"] * delta
            for h, delta in zip(server["correction"], change, strict=True)
        ]
        # A cohort without a sample says nothing, and moves nothing.
        new = [
            tf.where(present > 0, w + delta - h / self.alpha, w)
            for w, delta, h in zip(weights, change, correction, strict=True)
        ]
        return new, {**server, "correction": correction}
