"""CReFF: classifier re-training with federated features.

Federated Learning on Heterogeneous and Long-Tailed Data via Classifier Re-Training with Federated
Features; X. Shang, Y. Lu, G. Huang, H. Wang; IJCAI 2022.

A head calibration, for any method whose global model has a linear head (`head_calibration=creff`).
The method `creff` is FedAvg with it; with another method, read that method for FedAvg. Differs from
FedAvg in the head of the global model. The server holds the same number of trainable "federated
features" for each class. For each of their classes, clients send the gradient of the re-trained
head's loss on their features, computed with the broadcast backbone and head. The server averages
each class's gradient over the clients that have the class. It then moves the class's federated
features so that the gradient of the same head on them has the same direction: these steps reduce
the sum of 1 - cosine over the columns of the kernel's gradient and the gradient of the bias.
Finally, it trains a new head on all federated features. The backbone and the local training are
those of FedAvg. With `epochs=0` it is FedAvg.

A client sends C·(1 + (d + 1)·C) numbers in addition to the weights.

Within few rounds, re-training gains little with the published settings, because the federated
features hardly move. They start as standard normal noise, the gradient of the distance is divided
among all features of a class, and only directions are matched. The authors train for 200 rounds, on
federations whose clients share classes. A larger `matching_learning_rate` has the effect of more
steps and takes no additional time: on digits (P10C2, 20 rounds, learning rate 0.01, seed 0), GA was
49.3 % with the published 0.1, 63.8 % with 1 and 74.1 % with 10, FedAvg's 42.9 % and CCVR's 79.9 %.

This module follows the authors' code. Departures from it:
- The global model is the backbone for which the head was re-trained, as in
  `calibrated.Calibrated`; the code combines the head with the backbone that results from the round.
- A client's gradient is that of all its samples of a class, without augmentation; the code takes
  the mean over ten random, augmented batches of 32.
- The first re-trained head is FedAvg's; in the code, it is a random one of its own.
- A cohort without samples leaves the re-trained head as it is.
"""

from __future__ import annotations

import dataclasses
from typing import ClassVar

from etils import epy

from tff_pcdd.methods import head_calibration
from tff_pcdd.methods._shared.retraining import train_head, with_ones
from tff_pcdd.methods.contract import Method, register
from tff_pcdd.methods.head_calibration import HeadCalibration
from tff_pcdd.settings import option

with epy.lazy_imports():
    import tensorflow as tf

    from tff_pcdd import losses

_EPSILON = 1e-6


@head_calibration.register
@dataclasses.dataclass(frozen=True)
class FederatedFeatures(HeadCalibration):
    """Trains a head on features which match the clients' gradients."""

    name = "creff"
    tuning: ClassVar = {"features": (50, 100, 200)}

    epochs: int = head_calibration.epochs_option(300)
    learning_rate: float = head_calibration.learning_rate_option(0.01)
    features: int = option(100, "Federated features of each class.", minimum=1)
    matching_steps: int = option(
        100, "Steps of SGD in a round that move the federated features.", minimum=1
    )
    matching_learning_rate: float = option(0.1, "Learning rate of the federated features.", above=0)

    def server_state(self, feature_dim, num_classes, seed):
        shape = [num_classes, self.features, feature_dim]
        return {
            "features": tf.random.stateless_normal(shape, [seed, 0]),
            "seed": tf.constant([seed, 1]),
        }

    def sums(self, head, embed, class_counts, reduce):
        dim, num_classes = head.kernel.shape

        def add(total, x, y):
            features, own = embed(x), tf.one_hot(y, num_classes)
            error = tf.nn.softmax(head(features)) - own
            inputs = own[:, :, None] * with_ones(features)[:, None]
            flat = tf.reshape(inputs, [-1, num_classes * (dim + 1)])
            return total + tf.matmul(flat, error, transpose_a=True)

        total = reduce(add, tf.zeros([num_classes * (dim + 1), num_classes]))
        total = tf.reshape(total, [num_classes, dim + 1, num_classes])
        gradients = tf.math.divide_no_nan(total, class_counts[:, None, None])
        return {"gradients": gradients, "holders": tf.cast(class_counts > 0, tf.float32)}

    def retrain(self, head, retrained, server, sums):
        holders = sums["holders"]
        targets = tf.math.divide_no_nan(sums["gradients"], holders[:, None, None])
        old = tf.concat([retrained[0], retrained[1][None]], axis=0)
        num_classes, _, dim = server["features"].shape

        def match(step, features):
            with tf.GradientTape() as tape:
                tape.watch(features)
                loss = matching_loss(features, old, targets, holders > 0)
            return step + 1, features - self.matching_learning_rate * tape.gradient(loss, features)

        def train():
            _, features = tf.while_loop(
                lambda step, _: step < self.matching_steps,
                match,
                (tf.constant(0), server["features"]),
            )
            seeds = tf.unstack(tf.random.experimental.stateless_split(server["seed"], 3))
            # The initial values of torch.nn.Linear.
            bound = dim**-0.5
            first = tuple(
                tf.random.stateless_uniform(value.shape, seed, -bound, bound)
                for value, seed in zip(head, seeds, strict=False)
            )
            labels = tf.repeat(tf.range(num_classes), self.features)
            trained = train_head(
                first,
                tf.reshape(features, [-1, dim]),
                labels,
                self.epochs,
                self.learning_rate,
                seeds[2],
            )
            return features, *trained

        features, *trained = tf.cond(
            tf.reduce_any(holders > 0), train, lambda: (server["features"], *retrained)
        )
        return tuple(trained), {"features": features, "seed": server["seed"] + [0, 1]}


@register
@dataclasses.dataclass(frozen=True)
class CReFF(Method):
    """FedAvg with a head that is re-trained on features which match the clients' gradients."""

    name = "creff"
    head_calibration = "creff"


def matching_loss(
    features: tf.Tensor, head: tf.Tensor, targets: tf.Tensor, present: tf.Tensor
) -> tf.Tensor:
    """How much the directions of the head's gradients on features differ from given directions.

    Args:
        features: [C, n, d], n features of each class.
        head: [d + 1, C], the kernel and, as the last row, the bias.
        targets: [C, d + 1, C], for each class the gradient of the head's cross-entropy.
        present: bool [C], the classes that are included.

    Returns:
        The sum over these classes of 1 - cosine, summed over the C columns of the kernel and the
        bias.
    """
    num_classes, count, _ = features.shape
    inputs = with_ones(features)
    error = tf.nn.softmax(inputs @ head) - tf.eye(num_classes)[:, None]
    gradients = tf.matmul(inputs, error, transpose_a=True) / count

    def distance(a, b, axis):
        lengths = losses.safe_norm(a, axis) * losses.safe_norm(b, axis)
        cosines = tf.reduce_sum(a * b, axis) / (lengths + _EPSILON)
        return tf.reduce_sum(1 - cosines, axis=1)

    kernels = distance(gradients[:, :-1], targets[:, :-1], 1)
    biases = distance(gradients[:, -1:], targets[:, -1:], 2)
    return tf.reduce_sum(tf.where(present, kernels + biases, 0.0))
