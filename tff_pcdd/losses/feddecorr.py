"""FedDecorr's penalty on correlations between features."""

import tensorflow as tf

from tff_pcdd.losses.fedmr import intra_class

DECORRELATION_FORMS = ("code", "paper")


def decorrelation(features, form: str = "code") -> tf.Tensor:
    """Correlation of the features of a batch (FedDecorr).

    Source: Shi et al.: "Towards Understanding and Mitigating Dimensional Collapse in Heterogeneous
    Federated Learning", ICLR 2023, and its authors' code. X̂ are the features, standardized with
    their mean and unbiased variance in the batch; K = X̂ᵀX̂/(N - 1) is their correlation matrix.

    * `code`: the mean of the off-diagonal entries of (X̂ᵀX̂)², divided by N. It is about N·r², where
      r² is the mean squared correlation.
    * `paper`: ‖K‖²/d², the mean of all entries of K², between 1/d and 1.

    It is FedMR's intra-class loss for a batch whose samples are all of one class.

    Args:
      features: [batch, d], any float type.
      form: "code" or "paper".

    Returns:
      Scalar, float32 (float64 for float64 features); 0 for a batch of a single sample.

    Raises:
      ValueError: if `form` is unknown.
    """
    if form not in DECORRELATION_FORMS:
        raise ValueError(f"form must be one of {', '.join(DECORRELATION_FORMS)}, got {form!r}")
    features = tf.convert_to_tensor(features)
    labels = tf.zeros(tf.shape(features)[:1], tf.int32)
    if form == "code":
        return intra_class(features, labels, 1, "code")
    total = intra_class(features, labels, 1, "frobenius")
    return total / tf.cast(tf.square(tf.shape(features)[1]), total.dtype)
