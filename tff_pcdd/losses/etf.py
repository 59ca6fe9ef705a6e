"""Logits of a simplex equiangular tight frame (ETF), global or adapted to a client.

Source: Fan et al.: "Federated Learning with Bilateral Curation for Partially Class-Disjoint Data"
(FedGELA), NeurIPS 2023, equations 4 and 5. The global model classifies with the frame M itself.
Client k scales column c of M by Φ_{k,c} = C·n_{k,c}/n_k, so that its frequent classes take more of
the feature space, and classes without samples take none.
"""

from collections.abc import Callable

import numpy as np
import tensorflow as tf

from tff_pcdd.losses._numerics import at_least_float32, l2_normalize

PHI_VARIANTS = ("linear", "sqrt", "exp")

# Logit of an excluded class: far below every real logit (at most C·scale, 1e8, in FedGELA), but
# finite in float32.
MASKED_LOGIT = -1e32


def etf_logits(features, etf, phi=None, scale: float = 1.0, *, normalize: bool = True) -> tf.Tensor:
    """Logits z_c = scale · Φ_c · ⟨m_c, h/‖h‖⟩ of a fixed frame (FedGELA, equation 5).

    A class with Φ_c = 0 has the logit 0, so it is still part of the softmax; `mask_logits` excludes
    it.

    Args:
      features: [batch, feature_dim], any float type.
      etf: [feature_dim, num_classes], one column per class, e.g. `layers.simplex_etf`.
      phi: [num_classes] or [batch, num_classes] factors Φ of the classes; `None` for the global
        model.
      scale: factor of the logits: the inverse of the temperature in the authors' code, the square
        root of E_W in the paper.
      normalize: whether to scale the features to length 1 first; use `False` after batch
        normalization alone.

    Returns:
      Logits [batch, num_classes], float32 (float64 for float64 features); never half precision,
      where logits of 1e5 overflow.
    """
    features = at_least_float32(features)
    if normalize:
        features = l2_normalize(features)
    logits = scale * tf.matmul(features, tf.cast(etf, features.dtype))
    return logits if phi is None else logits * tf.cast(phi, logits.dtype)


def mask_logits(logits, mask) -> tf.Tensor:
    """Excludes classes from a softmax or an argmax.

    Masked logits become -1e32, not -inf: the softmax is 0 for both, but if all classes of a row or
    the label itself were masked, -inf would lead to NaN (inf - inf), which the gradient would carry
    into every weight. Masked entries have gradient 0. Scale the logits before masking: 1e5 times
    -1e32 is no longer finite.

    Args:
      logits: [batch, num_classes], any float type.
      mask: [num_classes] or [batch, num_classes]; classes with `True` or a number above 0 (such as
        a count or Φ) are kept.

    Returns:
      Logits [batch, num_classes], float32 (float64 for float64 logits).
    """
    logits = at_least_float32(logits)
    mask = tf.convert_to_tensor(mask)
    if mask.dtype != tf.bool:
        mask = mask > 0
    return tf.where(mask, logits, tf.constant(MASKED_LOGIT, logits.dtype))


def phi_from_counts(class_counts, variant: str = "linear", normalizer=None) -> tf.Tensor:
    """Factors Φ_k by which client k scales the columns of the frame, from its class counts.

    `linear` is Φ_c = C·n_c/n (FedGELA, equation 4); `sqrt` and `exp` are γ·Q(n_c/n) with
    Q(x) = √x and Q(x) = e^x (table 6). Since e^0 = 1, a class without samples has Φ > 0 with
    `exp`; use the counts to find out which classes are present.

    Args:
      class_counts: [..., num_classes] numbers of training samples, one row per client.
      variant: "linear", "sqrt" or "exp".
      normalizer: γ, one number or one per class, which only the server can compute, see
        `phi_normalizer`. Required for `sqrt` and `exp`; `None` means C for `linear`.

    Returns:
      Φ of the shape of `class_counts`, float32; zeros for a client without samples.

    Raises:
      ValueError: if the variant is unknown, or needs a normalizer and there is none.
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
    """The factor γ for which the average of Φ is 1 (FedGELA, the condition after equation 4).

    The average is over clients, weighted by their share p_k of all samples, and over classes:
    γ · Σ_k p_k · (1/C) Σ_c Q(n_{k,c}/n_k) = 1. For `linear`, γ is C for any counts.

    Args:
      count_matrix: [num_clients, num_classes] numbers of training samples.
      variant: "linear", "sqrt" or "exp".

    Returns:
      γ, a Python float.

    Raises:
      ValueError: if the variant is unknown, or the matrix is not 2-D or contains no samples.
    """
    _check_variant(variant)
    counts = np.asarray(count_matrix, np.float64)
    if counts.ndim != 2:
        raise ValueError(
            f"count_matrix must be [num_clients, num_classes], got shape {counts.shape}"
        )
    totals = counts.sum(axis=1)
    if not totals.sum() > 0:
        raise ValueError("count_matrix contains no samples")
    shares = counts / np.maximum(totals, 1.0)[:, None]
    functions: dict[str, Callable[[np.ndarray], np.ndarray]] = {
        "linear": lambda x: x,
        "sqrt": np.sqrt,
        "exp": np.exp,
    }
    stretch = functions[variant](shares)
    return float(totals.sum() / np.dot(totals, stretch.mean(axis=1)))


def _check_variant(variant: str) -> None:
    if variant not in PHI_VARIANTS:
        raise ValueError(f"variant must be one of {', '.join(PHI_VARIANTS)}, got {variant!r}")
