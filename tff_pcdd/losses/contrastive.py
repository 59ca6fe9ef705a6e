"""Contrastive losses on features: with other models (MOON) and with class prototypes (FedProc)."""

import tensorflow as tf

from tff_pcdd.losses._numerics import at_least_float32, l2_normalize
from tff_pcdd.losses.etf import mask_logits


def model_contrast(features, global_features, previous_features, temperature: float) -> tf.Tensor:
    """Pulls features towards those of the global model and away from those of the previous model.

    Source: Li et al.: "Model-Contrastive Federated Learning" (MOON), CVPR 2021, equation 3. The
    loss of a sample is -log(e^{s(z,z_g)/τ} / (e^{s(z,z_g)/τ} + e^{s(z,z_p)/τ})), where s is the
    cosine; it is log 2 if both cosines are equal. The features of the other models receive no
    gradient.

    Args:
      features: z, [batch, d].
      global_features: z_g, [batch, d].
      previous_features: z_p, [batch, d].
      temperature: τ.

    Returns:
      Mean over samples: a scalar, float32 (float64 for float64 features).
    """
    unit = l2_normalize(at_least_float32(features))

    def cosine(other):
        other = tf.stop_gradient(l2_normalize(tf.cast(other, unit.dtype)))
        return tf.reduce_sum(unit * other, axis=-1)

    # -log of a softmax over two logits is the softplus of their difference.
    difference = cosine(previous_features) - cosine(global_features)
    return tf.reduce_mean(tf.math.softplus(difference / temperature))


def prototype_contrast(
    features, labels, prototypes, valid, temperature: float
) -> tuple[tf.Tensor, tf.Tensor]:
    """Cross-entropy whose logits are the cosines of features and class prototypes.

    Source: Mu et al.: "FedProc: Prototypical Contrastive Federated Learning on Non-IID Data", 2021,
    the global prototypical contrastive loss. Classes without a prototype are excluded from the
    softmax; samples whose class has no prototype are excluded from the mean. The prototypes receive
    no gradient.

    Args:
      features: [batch, d].
      labels: [batch] class indices.
      prototypes: [num_classes, d].
      valid: [num_classes] booleans, which prototypes exist.
      temperature: divisor of the cosines, above 0.

    Returns:
      (loss, any_known): the mean loss, a scalar, and whether the class of any sample has a
      prototype. If none has, the loss is 0.
    """
    unit = l2_normalize(at_least_float32(features))
    anchors = tf.stop_gradient(l2_normalize(tf.cast(prototypes, unit.dtype)))
    logits = mask_logits(tf.matmul(unit, anchors, transpose_b=True) / temperature, valid)
    known = tf.gather(valid, labels)
    # The loss of a sample whose class has no prototype is huge but finite, so `where` removes it.
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits)
    losses = tf.where(known, losses, tf.zeros_like(losses))
    count = tf.reduce_sum(tf.cast(known, unit.dtype))
    return tf.math.divide_no_nan(tf.reduce_sum(losses), count), tf.reduce_any(known)
