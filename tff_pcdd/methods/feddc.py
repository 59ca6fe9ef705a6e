"""FedDC: local drift decoupling and correction.

FedDC: Federated Learning with Non-IID Data via Local Drift Decoupling and Correction; L. Gao, H.
Fu, L. Li, Y. Chen, M. Xu, C.-Z. Xu; CVPR 2022.

Differs from FedAvg in that each client keeps its drift h_k, by which its optimum lies apart from
the global one. It minimises f_k(θ) + α/2·‖θ + h_k - w‖² + ⟨c - c_k, θ⟩, adds θ_k - w to h_k, and
the server averages θ_k + h_k: the mean of θ_k over the cohort and of h_k over all clients, both
unweighted. The linear term corrects the gradient by controls c_k, made of the change of the last
round per step and step size; c is their mean over all clients.

`control` says how c_k follows from the change Δ_k of τ steps of size η: -Δ_k/(ητ) (paper), or
c_k - c - Δ_k/(ητ) (code, as in SCAFFOLD); `none` leaves the correction out, and then it is FedDyn
with the same α. Departures: one α for all clients, and τ the client's own number of steps, where
the authors' code scales α by the client's relative size and takes one τ for all. With momentum, τ
is the weight that the steps' gradients have in Δ_k, as in FedNova: counted one by one, the
estimated gradients would be 1/(1 - ρ) times too long, and drive each other up. No clipping of its
own (--client_clip_norm clips).

The authors train by plain SGD, and so should you: with momentum 0.9 corrections overshoot in the
first rounds. On digits (P10C2, 20 rounds) momentum 0 and step size 0.1 came to a GA of 59.6 where
momentum 0.9 and 0.01, which take steps of the same length in the long run, stayed at chance.
"""

import dataclasses

from etils import epy

from tff_pcdd.methods.fednova import accumulated_weight
from tff_pcdd.methods.method import Method, Upload, register
from tff_pcdd.options import option

with epy.lazy_imports():
    import tensorflow as tf


@register
@dataclasses.dataclass(frozen=True)
class FedDC(Method):
    """FedAvg with a drift and a gradient control at each client."""

    name = "feddc"

    alpha: float = option(0.01, "α, weight of the drift's quadratic term.", above=0)
    control: str = option(
        "code",
        "The gradient correction: code, paper (they differ from the third round on), none.",
        choices=("code", "paper", "none"),
    )

    def client_state(self, net, task, seed):
        zeros = [tf.zeros_like(variable) for variable in net.shared.trainable]
        return {"drift": zeros, "control": zeros}

    def server_state(self, net, task):
        zeros = [tf.zeros_like(variable) for variable in net.shared.trainable]
        clients = tf.constant(float(len(task.class_counts)))
        return {"drift": zeros, "control": zeros, "clients": clients}

    def broadcast(self, server):
        return {"control": server["control"]}

    def loss(self, net, batch, client):
        loss, metrics = super().loss(net, batch, client)
        terms = [
            0.5 * self.alpha * tf.reduce_sum(tf.square(w + drift - anchor))
            + tf.reduce_sum((mean - own) * w)
            for w, anchor, drift, own, mean in zip(
                net.shared.trainable,
                client.anchor,
                client.state["drift"],
                client.state["control"],
                client.server["control"],
                strict=True,
            )
        ]
        return loss + tf.add_n(terms), metrics

    def weight(self, client):
        return tf.cast(tf.reduce_sum(client.class_counts) > 0, tf.float32)

    def _new_controls(self, client, changes):
        old, mean = client.state["control"], client.server["control"]
        if self.control == "none":
            return old
        steps = accumulated_weight(tf.cast(client.steps, tf.float32), client.optimizer.momentum)
        length = client.optimizer.learning_rate * steps
        gradients = [-tf.math.divide_no_nan(delta, length) for delta in changes]
        if self.control == "paper":
            return gradients
        return [c - m + g for c, m, g in zip(old, mean, gradients, strict=True)]

    def upload(self, net, client, reduce):
        changes, present = self.update(net, client), self.weight(client)
        controls = self._new_controls(client, changes)
        old = client.state["control"]
        # A client without samples has nothing to correct.
        controls = [o + present * (c - o) for c, o in zip(controls, old, strict=True)]
        drift = [h + delta for h, delta in zip(client.state["drift"], changes, strict=True)]
        moved = [c - o for c, o in zip(controls, old, strict=True)]
        return Upload({"control": moved, "clients": present}, {"drift": drift, "control": controls})

    def server_update(self, weights, change, server, sums, cohort_size):
        present, clients = sums["clients"], server["clients"]
        drift = [
            h + present / clients * delta for h, delta in zip(server["drift"], change, strict=True)
        ]
        control = [
            c + total / clients for c, total in zip(server["control"], sums["control"], strict=True)
        ]
        new = [
            tf.where(present > 0, w + delta + h, w)
            for w, delta, h in zip(weights, change, drift, strict=True)
        ]
        return new, {**server, "drift": drift, "control": control}
