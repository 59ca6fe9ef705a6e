"""Logits of a simplex equiangular tight frame, whole or adapted to a client's own classes.

Source: Fan et al.: "Federated Learning with Bilateral Curation for Partially Class-Disjoint Data"
(FedGELA), NeurIPS 2023, equations 4 and 5. The global model classifies with
the frame M itself; client k with column c of M stretched by Φ_{k,c} = C·n_{k,c}/n_k, so that a
class it holds much of gets more room, and a class it lacks none.
"""

import numpy as np
import tensorflow as tf

from tff_pcdd.losses._numerics import at_least_float32, l2_normalize

PHI_VARIANTS = ("linear", "sqrt", "exp")

# Logit of a class that must not win. Far below every real logit (FedGELA's reach C·scale, 1e8 at
# most), yet finite in float32.
MASKED_LOGIT = -1e32


def etf_logits(features, etf, phi=None, scale: float = 1.0, *, normalize: bool = True) -> tf.Tensor:
    """Logits of features against the columns of a fixed frame (FedGELA, equation 5).

    z_c = scale · Φ_c · ⟨m_c, h/‖h‖⟩. A class with Φ_c = 0 gets the logit 0 exactly: it still
    counts in a softmax over all classes. `mask_logits` takes it out.

    Args:
      features: [batch, feature_dim], any float type.
      etf: [feature_dim, num_classes], one column per class, e.g. `layers.simplex_etf`.
      phi: [num_classes] or [batch, num_classes] factors of the classes, `None` for the global
        model.
      scale: length of the logits, without a unit: the inverse of the authors' temperature, and
        the square root of E_W in the paper's formula.
      normalize: whether features are brought to length 1 first. `False` for features that a
        batch normalisation without L2 has scaled already.

    Returns:
      Logits [batch, num_classes], float32 (float64 for float64 features). They are never half
      precision, which cannot hold logits of 1e5.
    """
    features = at_least_float32(features)
    if normalize:
        features = l2_normalize(features)
    logits = scale * tf.matmul(features, tf.cast(etf, features.dtype))
    return logits if phi is None else logits * tf.cast(phi, logits.dtype)


def mask_logits(logits, mask) -> tf.Tensor:
    """Takes classes out of a softmax or an argmax.

    The filling is -1e32 and not -inf: softmax gives 0 for both, but a row without any class left,
    or a label that is masked itself, would turn -inf into NaN (inf - inf) and the NaN would reach
    every weight through the gradient. Masked entries pass no gradient. Mask after scaling, because
    a scale of 1e5 times the filling is no longer finite.

    Args:
      logits: [batch, num_classes], any float type.
      mask: [num_classes] or [batch, num_classes], boolean, or a number that is above 0 where the
        class stays (counts or Φ may be given as they are).

    Returns:
      Logits [batch, num_classes], float32 (float64 for float64 logits).
    """
    logits = at_least_float32(logits)
    mask = tf.convert_to_tensor(mask)
    if mask.dtype != tf.bool:
        mask = mask > 0
    return tf.where(mask, logits, tf.constant(MASKED_LOGIT, logits.dtype))


def phi_from_counts(class_counts, variant: str = "linear", normalizer=None) -> tf.Tensor:
    """Stretch Φ_k of the frame from how many samples of each class a client holds.

    `linear` is Φ_c = C·n_c/n (FedGELA, equation 4); `sqrt` and `exp` are γ·Q(n_c/n) with
    Q(x) = √x and Q(x) = e^x (table 6). Note that e^0 = 1: with `exp` a class that is absent keeps
    a stretch, so presence has to be read from the counts.

    Args:
      class_counts: [..., num_classes] numbers of training samples, one row per client.
      variant: "linear", "sqrt" or "exp".
      normalizer: γ, a number known to the server only, see `phi_normalizer`, or one for each class.
        Needed by `sqrt` and `exp`; `linear` uses C when it is `None`.

    Returns:
      Φ of the shape of `class_counts`, float32. A client without samples gets zeros.

    Raises:
      ValueError: for an unknown variant, or without the normaliser that the variant needs.
    """
    _check_variant(variant)
    counts = tf.cast(class_counts, tf.float32)
    if normalizer is None:
        if variant != "linear":
            raise ValueError(
                f"variant={variant!r} needs normalizer=phi_normalizer(count_matrix, {variant!r})"
            )
        normalizer = tf.cast(tf.shape(counts)[-1], tf.float32)
    totals = tf.reduce_sum(counts, axis=-1, keepdims=True)
    shares = tf.math.divide_no_nan(counts, totals)
    stretch = {"linear": tf.identity, "sqrt": tf.sqrt, "exp": tf.exp}[variant](shares)
    phi = tf.cast(normalizer, tf.float32) * stretch
    return tf.where(totals > 0, phi, tf.zeros_like(phi))


def phi_normalizer(count_matrix, variant: str = "linear") -> float:
    """The server's γ with which Φ is 1 on average (FedGELA, the condition after equation 4).

    The average runs over clients, weighted by their share p_k of all samples, and over classes:
    γ · Σ_k p_k · (1/C) Σ_c Q(n_{k,c}/n_k) = 1. For `linear` this is C whatever the counts.

    Args:
      count_matrix: [num_clients, num_classes] numbers of training samples.
      variant: "linear", "sqrt" or "exp".

    Returns:
      γ, a Python float.

    Raises:
      ValueError: for an unknown variant, a matrix of another rank, or one without samples.
    """
    _check_variant(variant)
    counts = np.asarray(count_matrix, np.float64)
    if counts.ndim != 2:
        raise ValueError(
            f"count_matrix must be [num_clients, num_classes], got shape {counts.shape}"
        )
    totals = counts.sum(axis=1)
    if not totals.sum() > 0:
        raise ValueError("count_matrix holds no samples, so there is nothing to normalise by")
    shares = counts / np.maximum(totals, 1.0)[:, None]
    stretch = {"linear": lambda x: x, "sqrt": np.sqrt, "exp": np.exp}[variant](shares)
    return float(totals.sum() / np.dot(totals, stretch.mean(axis=1)))


def _check_variant(variant: str) -> None:
    if variant not in PHI_VARIANTS:
        raise ValueError(f"variant must be one of {', '.join(PHI_VARIANTS)}, got {variant!r}")
