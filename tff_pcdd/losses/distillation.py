"""Losses of data-free knowledge distillation (FedGen)."""

from __future__ import annotations

import tensorflow as tf


def divergence(teacher: tf.Tensor, student: tf.Tensor) -> tf.Tensor:
    """Mean KL(softmax(teacher) ‖ softmax(student)) over rows of logits [batch, C]."""
    log_p, log_q = tf.nn.log_softmax(teacher), tf.nn.log_softmax(student)
    return tf.reduce_mean(tf.reduce_sum(tf.exp(log_p) * (log_p - log_q), axis=1))


def diversity(noise: tf.Tensor, features: tf.Tensor) -> tf.Tensor:
    """exp(-mean over pairs of noise distance × feature distance); 1 if all features are equal.

    Args:
        noise: [batch, width]; the distance of two rows is their mean squared difference.
        features: [batch, d]; the distance of two rows is their mean absolute difference.
    """
    noise_distances = tf.reduce_mean(tf.square(noise[:, None] - noise), axis=2)
    feature_distances = tf.reduce_mean(tf.abs(features[:, None] - features), axis=2)
    return tf.exp(-tf.reduce_mean(noise_distances * feature_distances))
