"""Contrastive losses on features: against other models, and against class prototypes."""

import tensorflow as tf

from tff_pcdd.losses._numerics import at_least_float32, l2_normalize
from tff_pcdd.losses.etf import mask_logits


def model_contrast(features, global_features, previous_features, temperature: float) -> tf.Tensor:
    """How much nearer features are to the previous model's than to the global model's.

    Source: Li et al.: "Model-Contrastive Federated Learning" (MOON), CVPR 2021, equation 3. With s
    the cosine, -log(e^{s(z,z_g)/τ} / (e^{s(z,z_g)/τ} + e^{s(z,z_p)/τ})), mean over samples; log 2
    where both are equally near. No gradient reaches the other models' features.

    Args:
      features: z, [batch, d].
      global_features: z_g, [batch, d].
      previous_features: z_p, [batch, d].
      temperature: τ.

    Returns:
      Scalar, float32 (float64 for float64 features).
    """
    unit = l2_normalize(at_least_float32(features))

    def cosine(other):
        other = tf.stop_gradient(l2_normalize(tf.cast(other, unit.dtype)))
        return tf.reduce_sum(unit * other, axis=-1)

    # -log of a softmax over two is the softplus of their difference.
    difference = cosine(previous_features) - cosine(global_features)
    return tf.reduce_mean(tf.math.softplus(difference / temperature))


def prototype_contrast(
    features, labels, prototypes, valid, temperature: float
) -> tuple[tf.Tensor, tf.Tensor]:
    """Cross-entropy of cosines with class prototypes over a temperature.

    Source: Mu et al.: "FedProc: Prototypical Contrastive Federated Learning on Non-IID Data", 2021,
    the global prototypical contrastive loss. Classes without a prototype are not in the softmax,
    samples without one of their own not in the mean. No gradient reaches the prototypes.

    Args:
      features: [batch, d].
      labels: [batch] class indices.
      prototypes: [num_classes, d].
      valid: [num_classes] booleans, which prototypes exist.
      temperature: above 0.

    Returns:
      (loss, any_known): a scalar, 0 if no sample has a prototype, and whether one has.
    """
    unit = l2_normalize(at_least_float32(features))
    anchors = tf.stop_gradient(l2_normalize(tf.cast(prototypes, unit.dtype)))
    logits = mask_logits(tf.matmul(unit, anchors, transpose_b=True) / temperature, valid)
    known = tf.gather(valid, labels)
    # A sample without a prototype of its own has a huge loss, but finite: it can be left out.
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits)
    losses = tf.where(known, losses, tf.zeros_like(losses))
    count = tf.reduce_sum(tf.cast(known, unit.dtype))
    return tf.math.divide_no_nan(tf.reduce_sum(losses), count), tf.reduce_any(known)
