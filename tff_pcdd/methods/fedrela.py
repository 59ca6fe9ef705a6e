"""FedReLa: re-labeling.

FedReLa: Imbalanced Federated Learning via Re-Labeling; G. Hu, P. Menéndez, F. Liu, M. Gong, G.
Wang, L. Peng; ICML 2026; arXiv 2606.26037.

Differs from FedAvg in the labels of the last rounds. Once, after a share of the planned rounds,
each client gives some samples of its frequent classes the labels of rarer ones, and trains with
these labels from then on. Let q_ij be the received model's probability of class j for sample i with
label y, and z_ij = (q_ij - mean)/deviation over the client's samples with label y. For each class
j, the threshold t_j is exceeded by the z_ij of a share of the client's samples. Sample i becomes
one of class j with the probability

    tanh(z_ij - t_j)·(n_y - n_j)/(max n - min n), or 0 if that is negative,

where n are the client's numbers of samples of all classes, including those that it lacks. If
several classes are drawn for a sample, the one with the highest probability is taken. From that
round on, the learning rate is multiplied by `rate_factor`. Nothing more is sent. With share=0 and
rate_factor=1 it is FedAvg.

A client keeps its labels, in a vector as long as the largest client needs. Personal models are
fine-tuned with the labels of the data and the unchanged learning rate. Clients with fewer than
1/share samples keep all labels. To re-label with the model of another run at once, as the authors
do, start from it (`warm_start`) with start=0.

It helps where the rare classes are lost: the new labels are wrong, but move the boundary towards
the frequent classes. On long-tailed digits (5 clients, Dirichlet 0.3, batches of 16, learning rate
0.05, seeds 0, 1 and 2) with imbalance factor 100, GA after 40 rounds is 70.8 ± 5.0 %, and 40.1 % on
the few classes; FedAvg with the same reduction of the learning rate (schedule=step,
schedule_milestones=0.8) has 65.0 ± 5.1 % and 24.5 %. 6 to 9 % of the samples have new labels. With
imbalance factor 20, FedAvg has 87.0 ± 1.9 % after 50 rounds and 56.8 % on the few classes already;
FedReLa has 86.4 ± 1.3 % and 59.2 %, and with rate_factor=1, with which the network learns the wrong
labels, 81.4 ± 3.7 % and 51.2 %.

Departures from the authors' code:
- The probabilities are those of the samples as they are, in eval mode; the code averages those of
  five augmented passes, and normalization layers use the statistics of their batches.
- A client that is not drawn in the first of these rounds re-labels when it is drawn; in the code,
  all clients take part.
- The authors re-label with FedETF and FedLoGe, too; here, the method is FedAvg.
"""

from __future__ import annotations

import dataclasses
from typing import ClassVar

from etils import epy

from tff_pcdd.methods.contract import Method, register
from tff_pcdd.settings import option

with epy.lazy_imports():
    import tensorflow as tf

    from tff_pcdd import draws, losses

_LEAST_DEVIATION = 1e-6


@register
@dataclasses.dataclass(frozen=True)
class FedReLa(Method):
    """FedAvg whose clients, late in training, give some samples the labels of rarer classes."""

    name = "fedrela"
    metric_names = ("relabeled",)
    has_schedule = True
    degenerate: ClassVar = {"share": 0.0, "rate_factor": 1.0}
    # The default first: until the labels change, all values are the same run, and of equal settings
    # the first one goes on after the rungs of a sweep. Without rungs, all are compared.
    tuning: ClassVar = {"share": (0.05, 0.02, 0.1)}

    share: float = option(
        0.05,
        "Share of a client's samples that can become samples of a class, for each class.",
        minimum=0,
        maximum=1,
    )
    start: float = option(
        0.8,
        "Share of the planned rounds before the labels change, at the latest in the last round.",
        minimum=0,
        maximum=1,
    )
    rate_factor: float = option(
        0.1, "Factor of the clients' learning rate from the round of the change on.", above=0
    )

    def client_state(self, net, task, seed):
        # The same number for all clients, whose states have one type.
        return {"labels": tf.fill([max(1, int(task.class_counts.sum(axis=1).max()))], -1)}

    def constants(self, class_counts, task):
        first = min(round(self.start * task.num_rounds), task.num_rounds - 1)
        return {"first": tf.constant(first), "relabeled": tf.constant(0.0)}

    def prepare(self, net, client, labels, apply):
        number, kept = tf.size(labels), client.state["labels"]
        late = client.round >= client.constants["first"]

        def draw():
            def probabilities(x):
                return tf.nn.softmax(tf.cast(self.global_logits(net, x)[""], tf.float32))

            found = apply(probabilities, client.class_counts.shape[0])
            seed = draws.fold_in(client.seed, 1)
            new = relabel(found, labels, client.class_counts, self.share, seed)
            padded = tf.pad(new, [[0, tf.size(kept) - number]], constant_values=-1)
            return tf.ensure_shape(padded, kept.shape)

        due = tf.logical_and(late, tf.logical_and(number > 0, kept[0] < 0))
        kept = tf.cond(due, draw, lambda: kept)
        new = tf.where(kept[:number] < 0, labels, kept[:number])
        changed = tf.reduce_sum(tf.cast(tf.not_equal(new, labels), tf.float32))
        share = tf.math.divide_no_nan(changed, tf.cast(number, tf.float32))
        constants = {**client.constants, "relabeled": share}
        client = client._replace(constants=constants, state={"labels": kept})
        if self.rate_factor != 1:
            rate = client.optimizer.learning_rate * tf.where(late, self.rate_factor, 1.0)
            client = client._replace(optimizer=client.optimizer.with_rate(rate))
        return client, new

    def loss(self, net, batch, client):
        loss, _ = super().loss(net, batch, client)
        return loss, {"relabeled": client.constants["relabeled"]}


def relabel(
    probabilities: tf.Tensor,
    labels: tf.Tensor,
    class_counts: tf.Tensor,
    share: float,
    seed: tf.Tensor,
) -> tf.Tensor:
    """The new labels of a client's samples, int32 [n].

    Args:
        probabilities: those of the classes, float32 [n, C].
        labels: the labels of the data, int32 [n].
        class_counts: the client's samples of each class, float32 [C].
        share: of the samples that have a larger z-score than the threshold of a class.
        seed: int32 [2].
    """
    num_classes, number = class_counts.shape[0], tf.shape(labels)[0]

    def means(values):
        sums, counts = losses.class_sums(values, labels, num_classes)
        return tf.math.divide_no_nan(sums, counts[:, None])

    centred = probabilities - tf.gather(means(probabilities), labels)
    deviations = tf.maximum(tf.sqrt(means(centred**2)), _LEAST_DEVIATION)
    scores = centred / tf.gather(deviations, labels)
    above = tf.cast(tf.cast(number, tf.float64) * share, tf.int32)
    ordered = tf.sort(scores, axis=0, direction="DESCENDING")
    threshold = ordered[tf.minimum(above, number - 1)]
    width = tf.reduce_max(class_counts) - tf.reduce_min(class_counts)
    sizes = tf.math.divide_no_nan(class_counts, width)
    rarer = tf.maximum(tf.gather(sizes, labels)[:, None] - sizes, 0.0)
    rates = tf.tanh(scores - threshold) * rarer
    drawn = tf.where(rates > draws.uniform(tf.shape(rates), seed), rates, 0.0)
    best = tf.argmax(drawn, axis=1, output_type=tf.int32)
    return tf.where(tf.reduce_max(drawn, axis=1) > 0, best, labels)
