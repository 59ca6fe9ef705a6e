"""The balanced softmax, which corrects for the class frequencies of a client."""

import tensorflow as tf

from tff_pcdd.losses._numerics import at_least_float32
from tff_pcdd.losses.etf import mask_logits


def balanced_logits(logits, class_counts, gamma: float = 1.0) -> tf.Tensor:
    """Logits f_c + γ·log n_c, whose cross-entropy is the balanced softmax loss.

    Source: Ren et al.: "Balanced Meta-Softmax for Long-Tailed Visual Recognition", NeurIPS 2020.
    FedRoD and FedETF use it with the client's own class counts. A class without samples (log 0) is
    excluded from the softmax, has gradient 0, and must not occur as a label.

    Args:
      logits: [batch, num_classes], any float type.
      class_counts: [num_classes] numbers of samples, any type.
      gamma: γ, weight of the logarithm.

    Returns:
      Logits [batch, num_classes], float32 (float64 for float64 logits).
    """
    logits = at_least_float32(logits)
    counts = tf.cast(class_counts, logits.dtype)
    return mask_logits(logits + gamma * tf.math.log(tf.maximum(counts, 1)), counts)
