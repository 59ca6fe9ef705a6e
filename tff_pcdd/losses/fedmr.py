"""FedMR's two losses on features, and the class prototypes that one of them needs.

Source: Fan et al.: "Federated Learning under Partially Class-Disjoint Data via Manifold Reshaping"
(FedMR), TMLR 2023, equations 3 and 4 and algorithm 1. A client that sees
few classes lets the features of each collapse onto a few directions and spread into the room of
the classes it lacks. The intra-class loss decorrelates the features of a class; the inter-class
loss keeps them nearer to their own global prototype than to those of the other classes.
"""

import tensorflow as tf

from tff_pcdd.losses._numerics import at_least_float32, safe_norm

INTRA_FORMS = ("frobenius", "offdiagonal", "code")
INTER_READINGS = ("all", "local", "missing", "nomargin")

# Added to variances inside the square root, as the authors do.
_EPSILON = 1e-8

# A squared distance from ‖z‖² - 2⟨z, g⟩ + ‖g‖² below this share of ‖z‖² + ‖g‖² is rounding.
_ROUNDING = 1e-5


def intra_class(features, labels, num_classes: int, form: str = "frobenius") -> tf.Tensor:
    """Correlation of the features within the classes of a batch (FedMR, equation 3).

    Features are standardised per class with that class's own mean and unbiased variance in the
    batch; M_c = X̂ᵀX̂/(N_c - 1) is their correlation matrix. Classes with fewer than two samples do
    not count. The forms differ in scale by orders of magnitude, and so do fitting weights:

    * `frobenius`: mean over classes of ‖M_c‖², the paper's (weight 1e-5 to 1e-4). About
      d + d(d-1)·r², where d is the width and r² the mean squared correlation.
    * `offdiagonal`: the same without the diagonal, which is constant but for dead features.
    * `code`: the authors' program, Σ_c mean of the off-diagonal (X̂ᵀX̂)² / Σ_c N_c (weight 0.01).
      About N_c·r².

    ‖X̂ᵀX̂‖ = ‖X̂X̂ᵀ‖, so the largest matrix is [batch, batch] and all classes are treated at once.
    The gradient is given by a formula as well: automatic differentiation makes so many small
    operations of it that they would be felt beside a small network.

    Args:
      features: [batch, feature_dim], any float type.
      labels: [batch] class indices; an index outside of [0, num_classes) leaves the sample out.
      num_classes: number of classes.
      form: "frobenius", "offdiagonal" or "code".

    Returns:
      Scalar, float32 (float64 for float64 features); 0 if no class has two samples.

    Raises:
      ValueError: for another form.
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
    """Σ_c w_c ‖X̂ᵀX̂‖² over the standardised features of every class, with its gradient.

    Args:
      features: [batch, feature_dim].
      member: [batch, classes], 1 for the class of a sample; a row of zeros leaves it out.
      counts: [classes] samples of each class.
      freedom: [classes], what variances are divided by.
      weights: [classes], w_c.
      with_diagonal: whether the diagonal of X̂ᵀX̂ counts.

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
            # With respect to X̂ first, then through its scale and its mean. The mean of X̂ itself is
            # 0, which spares a term.
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
    """How much nearer features are to foreign prototypes than to their own (FedMR, equation 4).

    For a class i of the batch and another class j, D_ij is the mean over the samples z of class i
    of max(‖z - g_i‖ - ‖z - g_j‖, 0). The loss is the mean of D_ij over the pairs (i, j) in which
    both prototypes are valid and i is in the batch. The equation as printed compares samples of
    two classes one by one, which is undefined for unequal counts; the readings settle the range
    of j:

    * `all`: every other class. It serves the purpose, prototypes that stand in for missing
      classes, and works for a client with a single class.
    * `local`: other classes of the batch.
    * `missing`: classes that the batch lacks.
    * `nomargin`: no j at all, the mean over classes of ‖z - g_i‖.

    No gradient reaches the prototypes. A feature on a prototype gets the gradient 0 for that
    distance. Memory is O(batch · (classes + feature_dim)).

    Args:
      features: [batch, feature_dim], any float type.
      labels: [batch] class indices; an index outside of [0, num_classes) leaves the sample out.
      prototypes: [num_classes, feature_dim]; rows that are not valid are never used.
      valid: [num_classes] booleans, whether a prototype has been seen.
      reading: "all", "local", "missing" or "nomargin".
      sample_mask: [batch] booleans or 0/1: the samples that take part, `None` for all. The result
        is that of the sub-batch (the paper's "Lite" variants draw 10 or 50 samples).

    Returns:
      Scalar, float32 (float64 for float64 features); 0 if there is no pair.

    Raises:
      ValueError: for another reading.
    """
    if reading not in INTER_READINGS:
        raise ValueError(f"reading must be one of {', '.join(INTER_READINGS)}, got {reading!r}")
    features = at_least_float32(features)
    dtype = features.dtype
    usable = tf.cast(valid, dtype)
    prototypes = tf.stop_gradient(tf.cast(prototypes, dtype))
    prototypes = tf.math.multiply_no_nan(prototypes, usable[:, None])
    # Distances do not depend on the origin; near the prototypes they lose fewer digits.
    origin = tf.math.divide_no_nan(tf.reduce_sum(prototypes, axis=0), tf.reduce_sum(usable))
    features, prototypes = features - origin, prototypes - origin

    num_classes = tf.shape(prototypes)[0]
    member = tf.one_hot(tf.cast(labels, tf.int32), num_classes, dtype=dtype)  # [batch, classes]
    if sample_mask is not None:
        member *= tf.cast(sample_mask, dtype)[:, None]
    counts = tf.reduce_sum(member, axis=0)
    present = tf.cast(counts > 0, dtype)
    own_classes = present * usable
    # Weight of a sample: 1/N_i of its class, 0 if its own prototype is unknown or it is left out.
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

    Its gradient, to the features only, is a formula for the same reason as that of `intra_class`.
    No [batch, num_classes, feature_dim] tensor is made.

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
        # The distance that training brings to 0 is computed exactly.
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
            # Unit vectors away from prototypes; a feature on a prototype has none.
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
    """Sums of the features of every class: what a client uploads for the prototypes.

    Sums of batches and of clients add up, so means are taken once, by `merge_prototypes`.

    Args:
      features: [batch, feature_dim], any float type.
      labels: [batch] class indices; negative ones leave the sample out.
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

    A class that no participant holds keeps its previous prototype, and stays invalid if it never
    had one: an average must not take an absent class for a zero vector.

    Args:
      sums: [num_classes, feature_dim] sums over all samples of all participants.
      counts: [num_classes] numbers of these samples.
      previous: [num_classes, feature_dim] prototypes so far.
      valid: [num_classes] booleans, which of them have been seen.

    Returns:
      (prototypes, valid): [num_classes, feature_dim] in the type of `sums`, and [num_classes]
      booleans.
    """
    sums = at_least_float32(sums)
    counts = tf.cast(counts, sums.dtype)
    seen = counts > 0
    means = tf.math.divide_no_nan(sums, counts[:, None])
    prototypes = tf.where(seen[:, None], means, tf.cast(previous, sums.dtype))
    return prototypes, tf.logical_or(tf.cast(valid, tf.bool), seen)
