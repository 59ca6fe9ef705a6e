"""Losses of knowledge distillation (FedGen, FedNTD, FedYoYo)."""

from __future__ import annotations

import tensorflow as tf

from tff_pcdd.losses.etf import mask_logits


def divergence(teacher: tf.Tensor, student: tf.Tensor) -> tf.Tensor:
    """Mean KL(softmax(teacher) ‖ softmax(student)) over rows of logits [batch, C]."""
    return tf.reduce_mean(_divergences(teacher, student))


def _divergences(teacher: tf.Tensor, student: tf.Tensor) -> tf.Tensor:
    log_p, log_q = tf.nn.log_softmax(teacher), tf.nn.log_softmax(student)
    return tf.reduce_sum(tf.exp(log_p) * (log_p - log_q), axis=1)


def right_divergence(
    teacher: tf.Tensor, student: tf.Tensor, labels: tf.Tensor, temperature: float = 1.0
) -> tf.Tensor:
    """Mean KL of two softmaxes over the samples that the teacher classifies correctly (FedYoYo).

    Source: Yan et al.: "You Are Your Own Best Teacher: Achieving Centralized-level Performance in
    Federated Learning under Heterogeneous and Long-tailed Data", ICCV 2025, and its authors' code.
    The teacher receives no gradient.

    Args:
        teacher: logits [batch, C].
        student: logits [batch, C].
        labels: [batch] class indices.
        temperature: T, by which the logits are divided.

    Returns:
        Scalar, at least 0; 0 if no sample is classified correctly.
    """
    teacher = tf.stop_gradient(teacher)
    right = tf.equal(tf.argmax(teacher, axis=1, output_type=labels.dtype), labels)
    weights = tf.cast(right, teacher.dtype)
    divergences = _divergences(teacher / temperature, student / temperature)
    return tf.math.divide_no_nan(tf.reduce_sum(weights * divergences), tf.reduce_sum(weights))


def not_true_divergence(
    teacher: tf.Tensor, student: tf.Tensor, labels: tf.Tensor, temperature: float = 1.0
) -> tf.Tensor:
    """τ² times the mean KL of two softmaxes over all classes except the true one (FedNTD).

    Source: Lee et al.: "Preservation of the Global Knowledge by Not-True Distillation in Federated
    Learning", NeurIPS 2022, and its authors' code. The true class has no influence, neither by its
    logit nor by its probability. The teacher receives no gradient.

    Args:
        teacher: logits [batch, C].
        student: logits [batch, C].
        labels: [batch] class indices.
        temperature: τ, by which the logits are divided. The factor τ² keeps the size of gradients.

    Returns:
        Scalar, at least 0; exactly 0 if there are only two classes.
    """
    others = tf.one_hot(labels, student.shape[1], on_value=False, off_value=True, dtype=tf.bool)
    teacher = mask_logits(tf.stop_gradient(teacher) / temperature, others)
    return temperature**2 * divergence(teacher, mask_logits(student / temperature, others))


def diversity(noise: tf.Tensor, features: tf.Tensor) -> tf.Tensor:
    """exp(-mean over pairs of noise distance × feature distance); 1 if all features are equal.

    Args:
        noise: [batch, width]; the distance of two rows is their mean squared difference.
        features: [batch, d]; the distance of two rows is their mean absolute difference.
    """
    noise_distances = tf.reduce_mean(tf.square(noise[:, None] - noise), axis=2)
    feature_distances = tf.reduce_mean(tf.abs(features[:, None] - features), axis=2)
    return tf.exp(-tf.reduce_mean(noise_distances * feature_distances))
