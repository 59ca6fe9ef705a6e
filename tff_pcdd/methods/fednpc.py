"""FedNPC: stochastic noise-driven post-hoc classifier calibration.

FedNPC: Stochastic Noise-driven Post-hoc Classifier Calibration Method for Federated Long-tailed
Learning; J. Gao, H. Zhao, Y. Yang, D. Guo; CVPR Findings 2026.

A head calibration, for any method whose global model has a linear head (`head_calibration=fednpc`).
The method `fednpc` is FedAvg with it. Differs from FedAvg in the head of the global model. The
server trains a copy of the new head on noise: features from N(0, I) and labels that are uniform
among the classes and independent of the features, all of them drawn again for each step of SGD with
momentum 0.9 on the mean cross-entropy. The noise says nothing about the classes, so the steps pull
the columns of the kernel and the biases towards each other, and with them their lengths. Clients
send nothing for it and never start from this head; the global model is the backbone that results
from the round with it. With `epochs=0` it is FedAvg. With another method, read that method for
FedAvg.

Departures from the authors' code (github.com/JintongGao/FedNPC, `re_train_classifier`):
- The number of steps is fixed in advance. The authors measure the accuracy on the test samples
  after each of 27 steps (49 with 100 classes) and keep the best step, so their figures are chosen
  on test data. The default is 9: later, the head can be lost to the noise. On digits (imbalance
  factor 20, 5 clients by Dirichlet(0.3), FedAvg with a learning rate of 0.05, batches of 16, 40
  rounds, seeds 0, 1, 2), GA is 85.5, 88.9 and 87.5 before, 87.5, 88.6 and 88.0 after 9 steps, and
  32.6, 36.5 and 48.5 after 27.
- The head is calibrated after every round, always from the head of the round, and not only after
  training.
"""

from __future__ import annotations

import dataclasses
from typing import ClassVar

from etils import epy

from tff_pcdd.methods import head_calibration
from tff_pcdd.methods._shared.retraining import with_ones
from tff_pcdd.methods.contract import Method, register
from tff_pcdd.methods.head_calibration import HeadCalibration
from tff_pcdd.settings import option

with epy.lazy_imports():
    import tensorflow as tf

_MOMENTUM = 0.9


@head_calibration.register
@dataclasses.dataclass(frozen=True)
class RandomFeatures(HeadCalibration):
    """Re-trains the head on Gaussian noise with random labels."""

    name = "fednpc"
    uses_features = False
    tuning: ClassVar = {"epochs": (3, 9, 14)}

    epochs: int = option(
        9, "Steps of re-training the head on noise at the server; 0 for none.", minimum=0
    )
    learning_rate: float = option(
        0.1, "Learning rate of re-training the head, by SGD with momentum 0.9.", above=0
    )
    features: int = option(10000, "Random features in each step.", minimum=1)

    def server_state(self, feature_dim, num_classes, seed):
        return {"seed": tf.constant([seed, 0])}

    def retrain(self, head, retrained, server, sums):
        dim, num_classes = head[0].shape

        def step(number, matrix, velocity):
            seed = tf.random.experimental.stateless_fold_in(server["seed"], number)
            feature_seed, label_seed = tf.unstack(tf.random.experimental.stateless_split(seed, 2))
            inputs = with_ones(tf.random.stateless_normal([self.features, dim], feature_seed))
            labels = tf.random.stateless_uniform(
                [self.features], label_seed, 0, num_classes, tf.int32
            )
            error = tf.nn.softmax(inputs @ matrix) - tf.one_hot(labels, num_classes)
            gradient = tf.matmul(inputs, error, transpose_a=True) / self.features
            velocity = _MOMENTUM * velocity + gradient
            return number + 1, matrix - self.learning_rate * velocity, velocity

        matrix = tf.concat([head[0], head[1][None]], axis=0)
        _, matrix, _ = tf.while_loop(
            lambda number, *_: number < self.epochs,
            step,
            (tf.constant(0), matrix, tf.zeros_like(matrix)),
        )
        return (matrix[:-1], matrix[-1]), {"seed": server["seed"] + [0, 1]}


@register
@dataclasses.dataclass(frozen=True)
class FedNPC(Method):
    """FedAvg with a head that is calibrated on noise with random labels."""

    name = "fednpc"
    head_calibration = "fednpc"
