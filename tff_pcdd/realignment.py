"""FedLoGe's realignment of the averaged classifier, for the global and for personal models.

Source: Xiao et al.: "FedLoGe: Joint Local and Generic Federated Learning under Long-tailed Data",
ICLR 2024, section on global and local adaptive feature realignment (GA-FR, LA-FR). The length of a
classifier's column grows with the frequency of its class. This biases the global model, so GA-FR
makes all lengths equal. For a personal model the lengths reflect the client's class frequencies, so
LA-FR combines the shared directions with the client's own lengths.

Only the columns are changed; the bias of ψ is added to the logits unchanged.
"""

import tensorflow as tf

from tff_pcdd.losses import l2_normalize, safe_norm


def global_realign(psi, scale: float = 1.7) -> tf.Tensor:
    """GA-FR: ψ'_c = scale · ψ_c / ‖ψ_c‖.

    The scale is 1 in the paper and 1.7 in the authors' code. It affects predictions only if the
    classifier has a bias, which is not scaled.

    Args:
      psi: [feature_dim, num_classes], one column per class; a zero column stays zero.
      scale: length of the new columns.

    Returns:
      Tensor [feature_dim, num_classes].
    """
    return scale * l2_normalize(_float(psi), axis=0)


def local_realign(psi, phi) -> tf.Tensor:
    """LA-FR: φ'_c = ψ_c · ‖φ_c‖, the personal classifier (FedLoGe, equation 7).

    ψ is the averaged classifier before `global_realign`.

    Args:
      psi: [feature_dim, num_classes], the shared classifier.
      phi: [feature_dim, num_classes], the client's own classifier.

    Returns:
      Tensor [feature_dim, num_classes].
    """
    psi = _float(psi)
    return psi * safe_norm(tf.cast(phi, psi.dtype), axis=0)


def _float(values) -> tf.Tensor:
    values = tf.convert_to_tensor(values)
    return values if values.dtype.is_floating else tf.cast(values, tf.float32)
