"""CCVR: classifier calibration with virtual representations.

No Fear of Heterogeneity: Classifier Calibration for Federated Learning with Non-IID Data; M. Luo,
F. Chen, D. Hu, Y. Zhang, J. Liang, J. Feng; NeurIPS 2021.

A head calibration, for any method whose global model has a linear head (`head_calibration=ccvr`).
The method `ccvr` is FedAvg with it; with another method, read that method for FedAvg. Differs from
FedAvg in the head of the global model. For each class, clients send the number of samples, the sum
of the features and the sum of their outer products. From these sums, the server computes the mean
and the covariance of each class over all clients (eq. 3 and 4); it needs nothing else. It then
draws the same number of virtual features for each class from the Gaussian with these moments, and
trains the head on them, starting from FedAvg's head. The backbone and the local training are those
of FedAvg. With `epochs=0` it is FedAvg.

A client sends C·(1 + d + d·(d + 1)/2) numbers in addition to the weights: 146 kB for 10 classes and
84 features, 5.3 MB for 512 features.

Departures from the paper:
- The head is calibrated after every round and not only after training. To avoid a second exchange
  with the clients, the features are those of the backbone that the round started from. The global
  model is this backbone with the calibrated head, so its backbone is one round behind FedAvg's.
- All classes have the same number of virtual features, as in the experiments of the paper, whose
  classes are equally frequent. Its text suggests shares like those of the samples, which would
  favor frequent classes.
- A class that the cohort lacks keeps its previous moments; in the paper all clients take part in
  the calibration. A class that has never been in a cohort has no virtual features.
- The epochs and the learning rate of the calibration are not those of the authors, whose code is
  not public. Implementations by others train for 1 to 10 epochs on 100 to 2000 virtual features per
  class.

The server decomposes the covariances in every round. On two cores, this took 0.01 s (10 classes)
and 0.04 s (100 classes) for 84 features, and 0.4 s and 3.5 s for 512 features. Training the head
took 0.1 s and 1.3 s for 84 features, and 0.2 s and 3.0 s for 512 features. Cholesky factors would
need a tenth of the time for the decomposition, but they give other virtual features, and they do
not exist for classes with fewer samples than features.
"""

from __future__ import annotations

import dataclasses
from typing import ClassVar

from etils import epy

from tff_pcdd.methods import head_calibration
from tff_pcdd.methods._shared.retraining import train_head
from tff_pcdd.methods.contract import Method, register
from tff_pcdd.methods.head_calibration import HeadCalibration
from tff_pcdd.settings import option

with epy.lazy_imports():
    import numpy as np
    import tensorflow as tf

    from tff_pcdd import losses

# Variances below this share of the mean squared length of a feature are rounding errors of sums.
_ROUNDING = 1e-6


@head_calibration.register
@dataclasses.dataclass(frozen=True)
class VirtualFeatures(HeadCalibration):
    """Re-trains the head on features drawn from Gaussians."""

    name = "ccvr"
    tuning: ClassVar = {"virtual_features": (100, 500, 2000)}

    epochs: int = head_calibration.epochs_option(10)
    learning_rate: float = head_calibration.learning_rate_option(0.01)
    virtual_features: int = option(500, "Virtual features of each class.", minimum=1)

    def server_state(self, feature_dim, num_classes, seed):
        return {
            "means": tf.zeros([num_classes, feature_dim]),
            "covariances": tf.zeros([num_classes, feature_dim, feature_dim]),
            "known": tf.zeros([num_classes], tf.bool),
            "seed": tf.constant([seed, 0]),
        }

    def sums(self, head, embed, class_counts, reduce):
        dim, num_classes = head.kernel.shape

        def add(totals, x, y):
            features = embed(x)
            sums, counts = losses.class_sums(features, y, num_classes)
            own = tf.one_hot(y, num_classes)[:, :, None] * features[:, None]
            products = tf.matmul(
                tf.reshape(own, [-1, num_classes * dim]), features, transpose_a=True
            )
            return counts + totals[0], sums + totals[1], products + totals[2]

        zeros = tf.zeros([num_classes]), tf.zeros([num_classes, dim])
        counts, sums, products = reduce(add, (*zeros, tf.zeros([num_classes * dim, dim])))
        # The products are symmetric: one triangle is sent.
        half = np.flatnonzero(np.tri(dim))
        packed = tf.gather(tf.reshape(products, [num_classes, -1]), half, axis=1)
        return {"counts": counts, "features": sums, "products": packed}

    def retrain(self, head, retrained, server, sums):
        means, covariances = moments(**sums)
        found = sums["counts"] > 0
        means = tf.where(found[:, None], means, server["means"])
        covariances = tf.where(found[:, None, None], covariances, server["covariances"])
        known = tf.logical_or(server["known"], found)
        noise_seed, order_seed = tf.unstack(
            tf.random.experimental.stateless_split(server["seed"], 2)
        )

        def calibrate():
            shape = [*covariances.shape[:1], self.virtual_features, *covariances.shape[1:2]]
            noise = tf.random.stateless_normal(shape, noise_seed)
            virtual = means[:, None] + noise @ square_roots(means, covariances)
            labels = tf.broadcast_to(tf.range(shape[0])[:, None], shape[:2])
            virtual, labels = tf.boolean_mask(virtual, known), tf.boolean_mask(labels, known)
            return train_head(
                head,
                tf.reshape(virtual, [-1, shape[2]]),
                tf.reshape(labels, [-1]),
                self.epochs,
                self.learning_rate,
                order_seed,
            )

        # A cohort without samples changes nothing.
        trained = tf.cond(tf.reduce_any(found), calibrate, lambda: retrained)
        return trained, {
            "means": means,
            "covariances": covariances,
            "known": known,
            "seed": server["seed"] + [0, 1],
        }


@register
@dataclasses.dataclass(frozen=True)
class CCVR(Method):
    """FedAvg with a head that is calibrated on features drawn from Gaussians."""

    name = "ccvr"
    head_calibration = "ccvr"


def moments(
    counts: tf.Tensor, features: tf.Tensor, products: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """Means and covariances of the features of each class over all clients (eq. 3 and 4).

    With n_k, μ_k and Σ_k of client k, equation 4 is ((Σ_k (n_k - 1) Σ_k + n_k μ_k μ_kᵀ) - n μ μᵀ) /
    (n - 1), in which the sum over k is the sum of the outer products of all features.

    Args:
        counts: [C], samples.
        features: [C, d], sums of features.
        products: [C, d·(d + 1)/2], sums of the lower triangles of features' outer products.

    Returns:
        (means [C, d], covariances [C, d, d]), both float32; zeros for a class without samples, and
        a covariance of zeros for a class with a single one.
    """
    dim = features.shape[1]
    place = np.zeros([dim, dim], np.int32)
    place[np.tril_indices(dim)] = range(dim * (dim + 1) // 2)
    place = np.maximum(place, place.T)
    # The difference of nearly equal numbers needs double precision.
    n, s, p = (tf.cast(value, tf.float64) for value in (counts, features, products))
    means = tf.math.divide_no_nan(s, n[:, None])
    scatter = tf.gather(p, place, axis=1) - s[:, :, None] * means[:, None]
    covariances = tf.math.divide_no_nan(scatter, tf.maximum(n - 1, 0)[:, None, None])
    return tf.cast(means, tf.float32), tf.cast(covariances, tf.float32)


def square_roots(means: tf.Tensor, covariances: tf.Tensor) -> tf.Tensor:
    """Symmetric R [C, d, d] with R·R = covariance; variances that are rounding errors become 0."""
    covariances = tf.cast(covariances, tf.float64)
    # Small matrices, for which GPUs take longer than processors.
    with tf.device("/device:CPU:0"):
        values, vectors = tf.linalg.eigh(covariances)
    squares = tf.reduce_sum(tf.square(tf.cast(means, tf.float64)), axis=1)
    least = _ROUNDING * (squares + tf.linalg.trace(covariances))
    lengths = tf.sqrt(tf.where(values > least[:, None], values, 0.0))
    return tf.cast(tf.matmul(vectors * lengths[:, None], vectors, transpose_b=True), tf.float32)
