"""pFedMe: personalized federated learning with Moreau envelopes.

Personalized Federated Learning with Moreau Envelopes; C. T. Dinh, N. H. Tran, T. D. Nguyen; NeurIPS
2020.

Differs from FedAvg in the local objective: instead of its loss f_k, a client minimizes the Moreau
envelope F_k(w) = min_θ f_k(θ) + λ/2·‖θ - w‖², whose minimizer θ_k is its personal model. For each
batch, K gradient steps on θ, which start at the θ of the previous batch, approximate the minimizer;
then w moves along the gradient of the envelope, λ·(w - θ) (algorithm 1). The server moves its model
by β times the mean change of the clients, w ← (1 - β)·w + β·mean w_k. In each round θ starts at the
received w. No setting makes it FedAvg.

The personal model is the θ_k with which the client ended its last round, without fine-tuning. For a
client that has not trained yet, it is the initial w. The statistics of normalization layers are
those of θ; w has the same ones, because its own loss is never computed.

Clients are weighted by samples, as in the authors' code; algorithm 1 weights them equally
(`client_weighting=uniform`).

Departures from the authors' code: there, clients that are not drawn train too, so that every θ_k
belongs to the current round; w is trained by the clients' optimizer, with its momentum, weight
decay and clipping (the published step is that of client_momentum=0 and client_weight_decay=0), and
the gradient of θ has no additional weight decay, which is 0.001 in the code.
"""

import dataclasses
from typing import ClassVar

from etils import epy

from tff_pcdd.errors import SettingError
from tff_pcdd.methods._shared.gradients import gradients_of
from tff_pcdd.methods._shared.own_model import OWN, OwnModelMethod
from tff_pcdd.methods.contract import register
from tff_pcdd.methods.network import Placement, cross_entropy
from tff_pcdd.methods.records import Upload
from tff_pcdd.settings import option

with epy.lazy_imports():
    import tensorflow as tf


@register
@dataclasses.dataclass(frozen=True)
class PFedMe(OwnModelMethod):
    """FedAvg on the Moreau envelopes of the clients' losses."""

    name = "pfedme"
    tuning: ClassVar = {"pull": (5.0, 15.0, 30.0)}

    pull: float = option(15.0, "λ, weight of the squared distance of θ to w.", above=0)
    inner_steps: int = option(5, "K, gradient steps on θ for each batch.", minimum=1)
    inner_learning_rate: float = option(
        0.05, "Learning rate of the steps on θ (authors: 0.01 to 0.1).", above=0
    )
    beta: float = option(
        1.0, "β, step of the server towards the mean of the clients' models.", above=0
    )

    def __post_init__(self):
        super().__post_init__()
        if self.inner_learning_rate * self.pull >= 2:
            raise SettingError(
                "pfedme_inner_learning_rate",
                self.inner_learning_rate,
                f"steps on θ diverge unless it is below 2/pfedme_pull={2 / self.pull:g}",
            )

    # θ starts at w in each round, so it is not a variable that the client keeps.
    def placement(self, part, layer):
        return Placement.SCRATCH if part.startswith(OWN) else super().placement(part, layer)

    def client_state(self, net, task, seed):
        return {"theta": [tf.identity(w) for w, _ in net.copies(OWN)]}

    def begin(self, net, client):
        net.refresh(OWN)

    def loss(self, net, batch, client):
        pairs = self.trained_pairs(net)
        thetas = [theta for _, theta in pairs]
        centre = [tf.stop_gradient(w) for w, _ in pairs]

        def own_loss():
            return cross_entropy(batch.y, self.own_logits(net, batch.x, training=True))

        def step(number, _):
            value, gradients = gradients_of(own_loss, thetas)
            for theta, gradient, w in zip(thetas, gradients, centre, strict=True):
                theta.assign_sub(self.inner_learning_rate * (gradient + self.pull * (theta - w)))
            return number + 1, value

        start = (tf.constant(0), tf.constant(0.0))
        _, value = tf.while_loop(lambda number, _: number < self.inner_steps, step, start)
        # Its gradient with respect to w is that of the envelope.
        distances = [tf.nn.l2_loss(w - tf.stop_gradient(theta)) for w, theta in pairs]
        return tf.stop_gradient(value) + self.pull * tf.add_n(distances), {}

    def upload(self, net, client, reduce):
        trained = {variable.ref() for variable in net.common}
        for w, theta in net.copies(OWN):
            if w.ref() not in trained:
                w.assign(theta)
        kept = [
            tf.where(tf.reduce_any(client.class_counts > 0), theta, old)
            for (_, theta), old in zip(net.copies(OWN), client.state["theta"], strict=True)
        ]
        return Upload({}, {"theta": kept})

    def server_change(self, change, sums):
        return [self.beta * delta for delta in change]

    def personalize(self, net, client):
        for (_, theta), kept in zip(net.copies(OWN), client.state["theta"], strict=True):
            theta.assign(kept)
