"""Ratio Loss, and the monitor that provides its ratios.

Addressing Class Imbalance in Federated Learning; L. Wang, S. Xu, X. Wang, Q. Zhu; AAAI 2021.

Differs from FedAvg in that each sample's loss has a weight, α + β·R_y. The server holds a few
samples of each class. Once a round it trains the broadcast model on the samples of one class at a
time, with the clients' optimizer, and observes the head's changes Δ^p. R_p = |Σ Δ^p| / |Σ mean of
the other classes' Δ|, where the sums are over the weights that class p increases and other classes
hardly change (`decisive_weights`). A class that the model has already learned changes the model
little and receives a small weight. Clients use the R of the previous round. From these changes and
the change of the global head, the server also estimates how many samples of each class took part in
the round (`composition`, algorithm 1), without asking the clients. The mean over clients is
unweighted (authors' code). With α = 1, β = 0 and client_weighting=samples it is FedAvg.

Departures from the paper: R is used from the second round on (authors' code), whereas the paper
waits until the composition is imbalanced. R is limited to `cap`, because its denominator can be
near 0. For an untrained model R is about C - 1 for every class, so a cap below that makes all
weights equal and the method FedAvg with a larger learning rate; 5000 is the limit in one variant of
the code. A class without decisive weights has R = 1, the smallest weight, because its own samples
change no weight clearly more than those of other classes do; the code gives it 10.

The server's samples are drawn from the clients' training samples: `auxiliary` of each class, or all
of them if a class has fewer. For such a class, Δ^p is computed from fewer samples, and in fewer
steps if they fill fewer batches. This lowers R for rare classes. The global model is not trained on
the server's samples. Still, no other method here gives its server any samples, which should be kept
in mind in comparisons.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import ClassVar

from etils import epy

from tff_pcdd.methods.contract import Method, register
from tff_pcdd.methods.records import Upload
from tff_pcdd.settings import option

with epy.lazy_imports():
    import tensorflow as tf

# Other classes change a decisive weight by less than this share of the own class's change.
_CLEAR = 0.8


@register
@dataclasses.dataclass(frozen=True)
class RatioLoss(Method):
    """FedAvg with samples weighted by how much their class still changes the model."""

    name = "ratioloss"
    degenerate: ClassVar = {"alpha": 1.0, "beta": 0.0, "client_weighting": "samples"}
    published_weighting = "uniform"
    tuning: ClassVar = {"beta": (0.01, 0.1, 1.0)}

    alpha: float = option(1.0, "α, weight of every sample.", above=0)
    beta: float = option(0.1, "β, weight of the ratio of the sample's class.", minimum=0)
    cap: float = option(
        5000.0,
        "Upper limit of the ratio; should be far above the number of classes, because all weights "
        "are equal otherwise.",
        above=0,
    )
    auxiliary: int = option(
        32,
        "Samples of each class that the server holds; all samples of a class that has fewer.",
        minimum=1,
    )

    def server_state(self, net, task):
        ones = tf.ones([task.num_classes])
        return {"ratio": ones, "composition": 0 * ones}

    def broadcast(self, server):
        return {"ratio": server["ratio"]}

    def loss(self, net, batch, client):
        logits = net["head"](self.embed(net, batch.x, training=True))
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=batch.y, logits=logits)
        losses *= self.alpha + self.beta * tf.gather(client.server["ratio"], batch.y)
        return tf.reduce_mean(losses), {}

    def upload(self, net, client, reduce):
        present = tf.cast(tf.reduce_sum(client.class_counts) > 0, tf.float32)
        sums = {"samples": tf.reduce_sum(client.class_counts), "clients": present}
        return Upload(sums, client.state)

    def server_learning(self, net, server, change, sums, task, learn):
        if not self.beta:
            return dict(server)
        kernel, plain = net["head"].kernel, functools.partial(Method.loss, self)
        before = tf.identity(kernel)
        x, y = (tf.constant(part) for part in task.server_samples(self.auxiliary))

        def learn_class(label, changes):
            chosen = tf.where(tf.equal(y, label))[:, 0]
            learn(tf.gather(x, chosen), tf.gather(y, chosen), plain, label)
            return label + 1, changes.write(label, kernel - before)

        changes = tf.TensorArray(tf.float32, task.num_classes, element_shape=kernel.shape)
        # A loop in the graph, so that training is traced once and not once per class.
        _, changes = tf.while_loop(
            lambda label, _: label < task.num_classes, learn_class, (tf.constant(0), changes)
        )
        position = [v.ref() for v in net.shared.trainable].index(kernel.ref())
        # n auxiliary samples of a class change the head about n times as much as a client's sample.
        total = sums["clients"] * self.auxiliary * change[position]
        ratio, composition = monitor(changes.stack(), total, sums["samples"])
        return {"ratio": tf.minimum(ratio, self.cap), "composition": composition}


def decisive_weights(changes: tf.Tensor) -> tf.Tensor:
    """The weights of the head that are decisive for each class.

    Args:
        changes: Δ, [C, d, C]: the head's change after training on one class (first axis) only.

    Returns:
        bool [C, d, C]: class p increases the weight by clearly more than any other class changes
        it in either direction.
    """
    largest = tf.math.top_k(tf.transpose(tf.abs(changes), [1, 2, 0]), 2).values
    clear = largest[..., 1] < _CLEAR * largest[..., 0]
    return tf.logical_and(tf.equal(changes, largest[..., 0]), clear)


def monitor(
    changes: tf.Tensor, total: tf.Tensor, samples: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """Computes ratios and composition from the head's changes (algorithm 1).

    Args:
        changes: as for `decisive_weights`.
        total: [d, C], estimated change by all samples of the round: K·n·ΔG, where ΔG is the mean
            change of K clients and Δ comes from n samples.
        samples: N, number of samples of the round, float32 scalar.

    Returns:
        (ratio, composition), both [C]. The ratio is 1 for a class without decisive weights, and
        infinite if the other classes do not change them at all. The composition of class p is the
        mean over its decisive weights of the estimates
        (total - N·mean of other Δ) / (Δ^p - mean of other Δ) that are within (0, 1.5·N/C), and N/C
        if there are none.
    """
    num_classes = changes.shape[0]
    others = (tf.reduce_sum(changes, axis=0) - changes) / (num_classes - 1)
    decisive = decisive_weights(changes)

    def over_decisive(values):
        return tf.reduce_sum(tf.where(decisive, values, 0.0), axis=[1, 2])

    own, rest = tf.abs(over_decisive(changes)), tf.abs(over_decisive(others))
    ratio = tf.where(tf.reduce_any(decisive, axis=[1, 2]), own / rest, 1.0)
    even = samples / num_classes
    estimates = tf.math.divide_no_nan(total - samples * others, changes - others)
    usable = tf.logical_and(decisive, tf.logical_and(estimates > 0, estimates < 1.5 * even))
    count = tf.reduce_sum(tf.cast(usable, tf.float32), axis=[1, 2])
    mean = tf.math.divide_no_nan(
        tf.reduce_sum(tf.where(usable, estimates, 0.0), axis=[1, 2]), count
    )
    return ratio, tf.where(count > 0, mean, even)
