"""FedGen: data-free knowledge distillation.

Data-Free Knowledge Distillation for Heterogeneous Federated Learning; Z. Zhu, J. Hong, J. Zhou;
ICML 2021.

Differs from FedAvg in a generator of features. It maps noise and a label to features that the
clients' heads classify as that label (eq. 4). The server trains it after each round on the heads of
the cohort, each weighted by its client's share of the samples of the label's class, and on a
diversity term. Clients receive it with the weights and add two terms to their loss (eq. 5):
a_t·cross-entropy of the head on generated features of random labels, and b_t·KL(head on generated
features of the sample's label ‖ model on the sample). a_t and b_t decay by 2 % per round, to no
less than 1e-4, and are zero in the first round. With a = b = 0 it is FedAvg.

Where the paper is ambiguous, this module follows the authors' code: the generator minimizes the
weighted sum of the heads' losses and not the loss of the summed logits, noise is uniform in [0, 1),
the generator is trained with batch statistics and a weight decay of 0.01, on classes of which the
cohort has samples, and the two terms apply only in the first 20 local epochs of a round.

Departures from the authors' code:
- By default, the generator ends with a ReLU (option `output`), because the features of the
  backbones are not negative; the code has no last activation (output=linear).
- Clients draw labels from the classes that the generator has been trained on, the code from all
  classes of the federation. The two differ until every class has been in a cohort.
- The share of a client is that of its samples; the code counts the samples of the batches that were
  drawn in the round, and starts each count at 1.
- After the 20 epochs, the momentum of the clients' optimizer starts again from zero.

The server needs the individual heads. Each client therefore writes its head into its own row
(`cohort_index`) of an array for the whole cohort, and the clients' arrays are summed. Only the
client's own row counts as sent.
"""

from __future__ import annotations

import dataclasses
from typing import ClassVar

from etils import epy

from tff_pcdd import draws
from tff_pcdd.methods._shared.generator import Generator
from tff_pcdd.methods._shared.rows import in_own_row
from tff_pcdd.methods.contract import Method, register
from tff_pcdd.methods.network import cross_entropy
from tff_pcdd.methods.records import Phase, Upload
from tff_pcdd.settings import option

with epy.lazy_imports():
    import tensorflow as tf

    from tff_pcdd import losses

_FADE, _FLOOR = 0.98, 1e-4
# Local epochs of a round in which generated features are used.
_GENERATED_EPOCHS = 20


@register
@dataclasses.dataclass(frozen=True)
class FedGen(Method):
    """FedAvg with features from a generator that is trained on the clients' heads."""

    name = "fedgen"
    degenerate: ClassVar = {"generative": 0.0, "distillation": 0.0}
    tuning: ClassVar = {"distillation": (0.1, 1.0, 10.0)}

    generative: float = option(
        10.0, "a, weight of the cross-entropy on generated features.", minimum=0
    )
    distillation: float = option(
        10.0, "b, weight of the distillation from generated features (EMNIST: 1).", minimum=0
    )
    noise_dim: int = option(64, "Width of the generator's noise.", minimum=1)
    hidden_dim: int = option(256, "Width of the generator's hidden layer.", minimum=1)
    output: str = option(
        "relu",
        "Last activation of the generator: relu, like that of the backbones, or linear for "
        "features behind a projection.",
        choices=("relu", "linear"),
    )
    generator_steps: int = option(50, "Training steps of the generator per round.", minimum=1)
    generator_batch: int = option(32, "Features per training step of the generator.", minimum=2)
    generator_learning_rate: float = option(
        3e-4, "Learning rate of Adam for the generator.", above=0
    )

    @property
    def _generator(self):
        return Generator(self.noise_dim, self.hidden_dim, self.output)

    # The client.

    def broadcast(self, server):
        return {"generator": server["generator"], "labels": server["labels"]}

    def _imagine(self, client, labels, seed):
        """Features for labels [n] from the generator that the server sent."""
        noise = draws.uniform([tf.size(labels), self.noise_dim], seed)
        num_classes = client.class_counts.shape[0]
        return self._generator.infer(client.server["generator"], noise, labels, num_classes)

    def loss(self, net, batch, client):
        logits = net["head"](self.embed(net, batch.x, training=True))
        loss = cross_entropy(batch.y, logits)
        fade = tf.pow(_FADE, tf.cast(client.round, tf.float32))
        known = tf.cast(tf.reduce_any(client.server["labels"] > 0), tf.float32)
        seeds = draws.split(batch.seed, 3)
        if self.generative:
            labels = draws.indices(client.server["labels"], tf.size(batch.y), seeds[0])
            imagined = net["head"](self._imagine(client, labels, seeds[1]))
            weight = tf.maximum(_FLOOR, self.generative * fade)
            loss += known * weight * cross_entropy(labels, imagined)
        if self.distillation:
            teacher = tf.stop_gradient(net["head"](self._imagine(client, batch.y, seeds[2])))
            weight = tf.maximum(_FLOOR, self.distillation * fade)
            loss += known * weight * losses.divergence(teacher, logits)
        return loss, {}

    def phases(self, net, epochs):
        if not self.generative and not self.distillation:
            return super().phases(net, epochs)
        first = min(epochs, _GENERATED_EPOCHS)
        phases = [Phase(net.trainable, first, self.loss)]
        if epochs > first:
            phases.append(Phase(net.trainable, epochs - first, super().loss))
        return phases

    def constants(self, class_counts, task):
        return {"cohort": tf.zeros([task.cohort_size])}

    def upload(self, net, client, reduce):
        cohort_size = client.constants["cohort"].shape[0]
        own = {
            "kernels": net["head"].kernel,
            "biases": net["head"].bias,
            "counts": client.class_counts,
        }
        sums = in_own_row(own, client.cohort_index, cohort_size)
        return Upload(sums, client.state, 1 / cohort_size)

    # The server.

    def server_state(self, net, task):
        generator = self._generator.initial(task.num_classes, task.feature_dim, task.seed)
        zeros = [tf.zeros_like(value) for value in generator["trained"]]
        return {
            "generator": generator,
            "adam": {"mean": zeros, "square": zeros},
            "labels": tf.zeros([task.num_classes]),
            "seed": tf.constant([task.seed, 0]),
        }

    def next_server_state(self, server, sums):
        # Classes of which the cohort has samples, and each client's share of them.
        labels = tf.cast(tf.reduce_any(sums["counts"] > 0, axis=0), tf.float32)
        shares = tf.math.divide_no_nan(sums["counts"], tf.reduce_sum(sums["counts"], axis=0))
        rounds = tf.cast(server["seed"][1], tf.int32)
        state = (server["generator"], server["adam"])
        rate = self.generator_learning_rate * tf.pow(_FADE, tf.cast(rounds, tf.float32))
        if self.generative or self.distillation:

            def learn(step, state):
                seed = draws.fold_in(server["seed"], step)
                done = rounds * self.generator_steps + step
                batch = self._draw(labels, seed)
                return step + 1, self._generator.train(*state, sums, shares, batch, done, rate)

            some = tf.reduce_any(labels > 0)
            _, state = tf.while_loop(
                lambda step, _: tf.logical_and(some, step < self.generator_steps),
                learn,
                (tf.constant(0), state),
            )
        generator, adam = state
        return {
            "generator": generator,
            "adam": adam,
            "labels": tf.maximum(server["labels"], labels),
            "seed": server["seed"] + [0, 1],
        }

    def _draw(self, labels, seed):
        """Noise and labels of a training step of the generator."""
        size = self.generator_batch
        seeds = draws.split(seed, 2)
        noise = draws.uniform([size, self.noise_dim], seeds[0])
        return noise, draws.indices(labels, size, seeds[1])
