"""FedMR's two losses on features, and the class prototypes that the inter-class loss needs.

Source: Fan et al.: "Federated Learning under Partially Class-Disjoint Data via Manifold Reshaping"
(FedMR), TMLR 2023, equations 3 and 4 and algorithm 1. On a client with few classes, the features of
a class collapse onto a few directions and invade the space of the missing classes. The intra-class
loss decorrelates the features of a class; the inter-class loss keeps them nearer to their own
global prototype than to those of other classes.
"""

import tensorflow as tf

from tff_pcdd.losses._numerics import at_least_float32, safe_norm

INTRA_FORMS = ("frobenius", "offdiagonal", "code")
INTER_READINGS = ("all", "local", "missing", "nomargin")

# Added to variances inside the square root, as in the authors' code.
_EPSILON = 1e-8

# A squared distance ‖z‖² - 2⟨z, g⟩ + ‖g‖² below this fraction of ‖z‖² + ‖g‖² is rounding error.
_ROUNDING = 1e-5


def intra_class(features, labels, num_classes: int, form: str = "frobenius") -> tf.Tensor:
    """Correlation of the features within the classes of a batch (FedMR, equation 3).

    The features of each class are standardized with their mean and unbiased variance in the batch;
    M_c = X̂ᵀX̂/(N_c - 1) is their correlation matrix. Classes with fewer than two samples are
    ignored. The forms differ in scale by orders of magnitude, and so do suitable weights:

    * `frobenius`: the paper's loss, the mean over classes of ‖M_c‖² (weight 1e-5 to 1e-4). It is
      about d + d(d-1)·r², where d is the width and r² the mean squared correlation.
    * `offdiagonal`: the same without the diagonal, which is constant except for dead features.
    * `code`: the authors' code, Σ_c mean of the off-diagonal (X̂ᵀX̂)² / Σ_c N_c (weight 0.01). It is
      about N_c·r².

    Since ‖X̂ᵀX̂‖ = ‖X̂X̂ᵀ‖, the largest matrix is [batch, batch], and all classes are computed at once.
    The gradient is computed by a formula too, because automatic differentiation creates so many
    small ops that they would noticeably slow down the training of small networks.

    Args:
      features: [batch, feature_dim], any float type.
      labels: [batch] class indices; samples with an index outside of [0, num_classes) are ignored.
      num_classes: number of classes.
      form: "frobenius", "offdiagonal" or "code".

    Returns:
      Scalar, float32 (float64 for float64 features); 0 if no class has two samples.

    Raises:
      ValueError: if `form` is unknown.
    """
    if form not in INTRA_FORMS:
        raise ValueError(f"form must be one of {', '.join(INTRA_FORMS)}, got {form!r}")
    features = at_least_float32(features)
    member = tf.one_hot(tf.cast(labels, tf.int32), num_classes, dtype=features.dtype)
    counts = tf.reduce_sum(member, axis=0)
    accepted = tf.cast(counts >= 2, features.dtype)
    freedom = tf.maximum(counts - 1, 1)
    if form == "code":
        width = tf.cast(tf.shape(features)[1], features.dtype)
        samples = tf.reduce_sum(accepted * counts)
        weights = tf.math.divide_no_nan(accepted, samples * tf.maximum(width * (width - 1), 1))
    else:
        weights = accepted / tf.square(freedom)
        weights = tf.math.divide_no_nan(weights, tf.reduce_sum(accepted))
    return _correlation(features, member, counts, freedom, weights, form == "frobenius")


def _correlation(features, member, counts, freedom, weights, with_diagonal: bool) -> tf.Tensor:
    """Σ_c w_c ‖X̂ᵀX̂‖² over the standardized features of every class, with its gradient.

    Args:
      features: [batch, feature_dim].
      member: [batch, classes], 1 for the class of a sample; a row of zeros excludes the sample.
      counts: [classes] numbers of samples.
      freedom: [classes] divisors of the variances.
      weights: [classes], w_c.
      with_diagonal: whether to include the diagonal of X̂ᵀX̂.

    Returns:
      Scalar of the type of the features.
    """
    share = tf.math.divide_no_nan(member, counts)
    bessel = (counts / freedom)[:, None]

    def class_mean(values):
        return tf.matmul(share, values, transpose_a=True)

    def of_samples(values):
        return tf.matmul(member, values)

    @tf.custom_gradient
    def correlation(features):
        centred = features - of_samples(class_mean(features))
        variances = bessel * class_mean(tf.square(centred))
        inverse = of_samples(tf.math.rsqrt(_EPSILON + variances))
        standard = centred * inverse
        gram = tf.matmul(standard, standard, transpose_b=True)
        weighted = gram * tf.matmul(member * weights, member, transpose_b=True)
        total = tf.reduce_sum(weighted * gram)
        if not with_diagonal:
            diagonal = counts[:, None] * class_mean(tf.square(standard))
            weighted_diagonal = weights[:, None] * diagonal
            total -= tf.reduce_sum(weighted_diagonal * diagonal)

        def gradient(upstream):
            # First with respect to X̂, then through its scale and its mean. One term vanishes,
            # because the mean of X̂ is 0.
            slope = tf.matmul((4 * upstream) * weighted, standard)
            if not with_diagonal:
                slope -= (4 * upstream) * of_samples(weighted_diagonal) * standard
            along = of_samples(bessel * class_mean(slope * standard))
            return inverse * (slope - of_samples(class_mean(slope)) - along * standard)

        return total, gradient

    return correlation(features)


def inter_class(
    features, labels, prototypes, valid, reading: str = "all", *, sample_mask=None
) -> tf.Tensor:
    """Penalises features nearer to the prototype of another class (FedMR, equation 4).

    For a class i of the batch and another class j, D_ij is the mean over the samples z of class i
    of max(‖z - g_i‖ - ‖z - g_j‖, 0). The loss is the mean of D_ij over all pairs (i, j) such that
    both prototypes are valid and i occurs in the batch. The equation in the paper pairs the samples
    of two classes, which is undefined if their counts differ; `reading` selects the range of j:

    * `all`: every other class. Prototypes then represent the missing classes, which is the purpose
      of the loss, and a client with a single class can be trained.
    * `local`: the other classes of the batch.
    * `missing`: the classes that do not occur in the batch.
    * `nomargin`: no j; the loss is the mean over classes of ‖z - g_i‖.

    The prototypes receive no gradient. The gradient of a distance of 0 is 0. The memory needed is
    O(batch · (classes + feature_dim)).

    Args:
      features: [batch, feature_dim], any float type.
      labels: [batch] class indices; samples with an index outside of [0, num_classes) are ignored.
      prototypes: [num_classes, feature_dim]; rows that are not valid are ignored.
      valid: [num_classes] booleans, whether the class has a prototype.
      reading: "all", "local", "missing" or "nomargin".
      sample_mask: [batch] booleans or 0/1, the samples to include; `None` means all. The result
        equals that of the sub-batch (the paper's "Lite" variants draw 10 or 50 samples).

    Returns:
      Scalar, float32 (float64 for float64 features); 0 if there is no pair.

    Raises:
      ValueError: if `reading` is unknown.
    """
    if reading not in INTER_READINGS:
        raise ValueError(f"reading must be one of {', '.join(INTER_READINGS)}, got {reading!r}")
    features = at_least_float32(features)
    dtype = features.dtype
    usable = tf.cast(valid, dtype)
    prototypes = tf.stop_gradient(tf.cast(prototypes, dtype))
    prototypes = tf.math.multiply_no_nan(prototypes, usable[:, None])
    # Distances do not depend on the origin; an origin near the prototypes reduces rounding errors.
    origin = tf.math.divide_no_nan(tf.reduce_sum(prototypes, axis=0), tf.reduce_sum(usable))
    features, prototypes = features - origin, prototypes - origin

    num_classes = tf.shape(prototypes)[0]
    member = tf.one_hot(tf.cast(labels, tf.int32), num_classes, dtype=dtype)  # [batch, classes]
    if sample_mask is not None:
        member *= tf.cast(sample_mask, dtype)[:, None]
    counts = tf.reduce_sum(member, axis=0)
    present = tf.cast(counts > 0, dtype)
    own_classes = present * usable
    # Weight of a sample of class i: 1/N_i, or 0 if it is excluded or class i has no prototype.
    weights = tf.reduce_sum(member * tf.math.divide_no_nan(usable, counts), axis=1, keepdims=True)
    if reading == "nomargin":
        own = safe_norm(features - tf.matmul(member, prototypes), keepdims=True)
        return tf.math.divide_no_nan(tf.reduce_sum(weights * own), tf.reduce_sum(own_classes))

    rivals = {"all": usable, "local": usable * present, "missing": usable * (1 - present)}[reading]
    pairs = tf.reduce_sum(own_classes) * tf.reduce_sum(rivals) - tf.reduce_sum(own_classes * rivals)
    weights *= tf.math.divide_no_nan(rivals, pairs) * (1 - member)
    return _shortfall(features, prototypes, member, weights)


def _shortfall(features, prototypes, member, weights) -> tf.Tensor:
    """Σ w_zj max(‖z - g_i‖ - ‖z - g_j‖, 0) over samples z of class i and classes j.

    The gradient with respect to the features is computed by a formula, as in `intra_class`. No
    tensor of shape [batch, num_classes, feature_dim] is created.

    Args:
      features: [batch, feature_dim].
      prototypes: [num_classes, feature_dim].
      member: [batch, num_classes], 1 for the class of a sample.
      weights: [batch, num_classes], w; 0 where j is i.

    Returns:
      Scalar of the type of the features.
    """

    @tf.custom_gradient
    def shortfall(features):
        # Computed from the difference, which is exact where training brings the distance to 0.
        away = features - tf.matmul(member, prototypes)
        own = tf.sqrt(tf.reduce_sum(tf.square(away), axis=1, keepdims=True))
        lengths = tf.reduce_sum(tf.square(features), axis=1, keepdims=True)
        lengths += tf.reduce_sum(tf.square(prototypes), axis=1)
        squared = lengths - 2.0 * tf.matmul(features, prototypes, transpose_b=True)
        apart = squared > _ROUNDING * lengths
        foreign = tf.sqrt(tf.where(apart, squared, tf.zeros_like(squared)))
        margins = tf.nn.relu(own - foreign)

        def gradient(upstream):
            active = (upstream * weights) * tf.sign(margins)
            # Unit vectors away from the prototypes; 0 if a feature equals its prototype.
            pull = tf.math.divide_no_nan(tf.reduce_sum(active, axis=1, keepdims=True), own)
            push = tf.math.divide_no_nan(active, foreign)
            return (
                away * pull
                - features * tf.reduce_sum(push, axis=1, keepdims=True)
                + tf.matmul(push, prototypes)
            )

        return tf.reduce_sum(weights * margins), gradient

    return shortfall(features)


def class_sums(features, labels, num_classes: int) -> tuple[tf.Tensor, tf.Tensor]:
    """Sums of the features of every class, which a client uploads for the prototypes.

    Sums can be added over batches and clients; `merge_prototypes` then divides once.

    Args:
      features: [batch, feature_dim], any float type.
      labels: [batch] class indices; samples with a negative index are ignored.
      num_classes: number of classes.

    Returns:
      (sums, counts): [num_classes, feature_dim] and [num_classes], both float32 (float64 for
      float64 features).
    """
    features = at_least_float32(features)
    labels = tf.cast(labels, tf.int32)
    sums = tf.math.unsorted_segment_sum(features, labels, num_classes)
    ones = tf.ones_like(labels, dtype=features.dtype)
    return sums, tf.math.unsorted_segment_sum(ones, labels, num_classes)


def merge_prototypes(sums, counts, previous, valid) -> tuple[tf.Tensor, tf.Tensor]:
    """New global prototypes g_c = Σ_k n_{k,c} g_{k,c} / Σ_k n_{k,c} (FedMR, algorithm 1).

    A class that no participant holds keeps its previous prototype, or stays invalid if it never had
    one; its sum of zero is not used as a mean.

    Args:
      sums: [num_classes, feature_dim] sums over all samples of all participants.
      counts: [num_classes] numbers of these samples.
      previous: [num_classes, feature_dim], the previous prototypes.
      valid: [num_classes] booleans, which of them are valid.

    Returns:
      (prototypes, valid): [num_classes, feature_dim] of the type of `sums`, and [num_classes]
      booleans.
    """
    sums = at_least_float32(sums)
    counts = tf.cast(counts, sums.dtype)
    seen = counts > 0
    means = tf.math.divide_no_nan(sums, counts[:, None])
    prototypes = tf.where(seen[:, None], means, tf.cast(previous, sums.dtype))
    return prototypes, tf.logical_or(tf.cast(valid, tf.bool), seen)
