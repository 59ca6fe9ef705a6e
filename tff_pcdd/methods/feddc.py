"""FedDC: local drift decoupling and correction.

FedDC: Federated Learning with Non-IID Data via Local Drift Decoupling and Correction; L. Gao, H.
Fu, L. Li, Y. Chen, M. Xu, C.-Z. Xu; CVPR 2022.

Differs from FedAvg in that each client keeps its drift h_k, an estimate of the distance between its
own optimum and the global one. The client minimizes f_k(θ) + α/2·‖θ + h_k - w‖² + ⟨c - c_k, θ⟩ and
then adds θ_k - w to h_k. The server averages θ_k + h_k: θ_k over the cohort and h_k over all
clients, both unweighted as in the authors' code (the paper weights them by samples). The linear
term corrects the gradient by controls c_k. A control is computed from the change in the previous
round, divided by the number of steps and the learning rate; c is the mean of the controls over all
clients. If `client_weighting` is "samples", all three means are weighted.

`control` selects how c_k follows from the change Δ_k of τ steps with learning rate η: -Δ_k/(ητ)
(paper), or c_k - c - Δ_k/(ητ) (code, as in SCAFFOLD); `none` omits the correction, which gives
FedDyn with the same α.

Departures from the authors' code: α is the same for all clients and τ is the client's own number of
steps (the authors scale α by the client's relative size and use one τ for all), and gradients are
clipped by the clients' optimizer only. With momentum ρ, τ is the weight of the gradients in Δ_k, as
in FedNova; with the plain number of steps the estimated gradients would be 1/(1 - ρ) times too
large and would grow from round to round.

The authors train by SGD without momentum, which is recommended here as well: with momentum 0.9 the
corrections overshoot in the first rounds and the network can stay at chance level, so a warning is
printed.
"""

import dataclasses
from typing import ClassVar

from etils import epy

from tff_pcdd.methods.contract import Method, register
from tff_pcdd.methods.fednova import accumulated_weight
from tff_pcdd.methods.records import Upload
from tff_pcdd.settings import option

with epy.lazy_imports():
    import tensorflow as tf

# With this momentum, FedDC was seen to learn.
_MOST_MOMENTUM = 0.5


@register
@dataclasses.dataclass(frozen=True)
class FedDC(Method):
    """FedAvg with a drift and a gradient control at each client."""

    name = "feddc"
    published_weighting = "uniform"
    assumes_sgd = True
    tuning: ClassVar = {"alpha": (0.001, 0.01, 0.1)}

    alpha: float = option(0.01, "α, weight of the drift's quadratic term.", above=0)
    control: str = option(
        "code",
        "Gradient correction: as in the code or the paper (different from round 3 on), or none.",
        choices=("code", "paper", "none"),
    )

    def advice(self, optimizer):
        if self.control == "none" or optimizer.momentum <= _MOST_MOMENTUM:
            return None
        return (
            f"{self.name} with client_momentum={optimizer.momentum:g} can stay at chance level, "
            "because its corrections overshoot; its authors use client_momentum=0 with "
            "client_learning_rate=0.1"
        )

    def client_state(self, net, task, seed):
        zeros = [tf.zeros_like(variable) for variable in net.shared.trainable]
        return {"drift": zeros, "control": zeros}

    def server_state(self, net, task):
        zeros = [tf.zeros_like(variable) for variable in net.shared.trainable]
        return {"drift": zeros, "control": zeros, "total_weight": self.total_weight(task)}

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

    def _new_controls(self, client, changes):
        old, mean = client.state["control"], client.server["control"]
        if self.control == "none":
            return old
        steps = accumulated_weight(client.steps, client.optimizer.momentum)
        length = client.optimizer.learning_rate * steps
        gradients = [-tf.math.divide_no_nan(delta, length) for delta in changes]
        if self.control == "paper":
            return gradients
        return [c - m + g for c, m, g in zip(old, mean, gradients, strict=True)]

    def upload(self, net, client, reduce):
        changes, weight = self.update(net, client), self.weight(client)
        controls = self._new_controls(client, changes)
        old = client.state["control"]
        # A client without samples keeps its control.
        present = tf.cast(weight > 0, tf.float32)
        controls = [o + present * (c - o) for c, o in zip(controls, old, strict=True)]
        drift = [h + delta for h, delta in zip(client.state["drift"], changes, strict=True)]
        sums = {
            "control": [weight * (c - o) for c, o in zip(controls, old, strict=True)],
            "weight": weight,
        }
        return Upload(sums, {"drift": drift, "control": controls})

    def server_update(self, weights, change, server, sums, cohort_size):
        weight, total = sums["weight"], server["total_weight"]
        drift = [
            h + weight / total * delta for h, delta in zip(server["drift"], change, strict=True)
        ]
        new = [
            tf.where(weight > 0, w + delta + h, w)
            for w, delta, h in zip(weights, change, drift, strict=True)
        ]
        return new, {**self.next_server_state(server, sums), "drift": drift}

    def next_server_state(self, server, sums):
        control = [
            c + moved / server["total_weight"]
            for c, moved in zip(server["control"], sums["control"], strict=True)
        ]
        return {**super().next_server_state(server, sums), "control": control}
