"""Geometry of features and classifiers: angles, norms, eigenvalues, neural collapse.

Everything is computed with NumPy in double precision. Vectors are rows: `vectors` [C, d] contains
one vector per class, either class means or classifier columns (transpose a kernel [d, C]);
`features` [n, d] contains one row per sample, with `labels` int [n]. Undefined values, such as the
angle of a zero vector or the mean of a class without samples, are NaN. Averages ignore NaN, and are
NaN if nothing remains.

Sources:
    FedGELA: Fan et al., Federated Learning with Bilateral Curation for Partially Class-Disjoint
        Data, NeurIPS 2023: angles between the existing and the missing classes of a client.
    FedMR: Fan et al., Federated Learning under Partially Class-Disjoint Data via Manifold
        Reshaping, TMLR 2023, table 7: eigenvalues of the covariance of standardized features.
    FedLoGe: Xiao et al., Joint Local and Generic Federated Learning under Long-tailed Data, ICLR
        2024: norms of classifier columns, degenerate features.
    Neural collapse: Papyan, Han, Donoho, Prevalence of neural collapse during the terminal phase
        of deep learning training, PNAS 2020.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

# Networks compute in float32; values below this fraction of the largest are rounding errors.
_ROUNDING = 1e-6

# How many of the largest eigenvalues are measured.
_EIGENVALUES = 50


class MeanAngles(NamedTuple):
    """Mean angles in degrees between vectors of different classes, over unordered pairs.

    Attributes:
        all: over all pairs.
        existing: over pairs of classes that exist on the client.
        missing: over pairs of classes that are missing on the client.
        between: over pairs of an existing and a missing class.
    """

    all: float
    existing: float
    missing: float
    between: float


class FeatureStatistics(NamedTuple):
    """Statistics of each feature over all samples.

    Attributes:
        mean: [d].
        variance: [d], biased: the sum of squares is divided by n.
        constant: bool [d], whether the feature has the same value for all samples, as a dead ReLU
            unit has.
        nonpositive: bool [d], whether the feature is ≤ 0 for all samples.
    """

    mean: np.ndarray
    variance: np.ndarray
    constant: np.ndarray
    nonpositive: np.ndarray


# Angles and norms.


def simplex_angle(num_classes: int) -> float:
    """Angle in degrees between vectors of a simplex ETF, arccos(-1/(C-1)); NaN for one class."""
    if num_classes < 2:
        return float("nan")
    return float(np.degrees(np.arccos(-1 / (num_classes - 1))))


def cosines(vectors: np.ndarray) -> np.ndarray:
    """Cosines between all vectors [C, d], as [C, C]; NaN for zero vectors."""
    vectors = np.asarray(vectors, np.float64)
    lengths = norms(vectors)[:, None]
    units = np.divide(vectors, lengths, where=lengths > 0, out=np.full_like(vectors, np.nan))
    return np.clip(units @ units.T, -1, 1)


def angles(vectors: np.ndarray) -> np.ndarray:
    """Angles in degrees, 0 to 180, between all vectors [C, d], as [C, C]; NaN for zero vectors."""
    return np.degrees(np.arccos(cosines(vectors)))


def pairs(matrix: np.ndarray) -> np.ndarray:
    """Entries above the diagonal of a matrix [C, C], one per pair of classes, without NaN."""
    values = matrix[np.triu_indices(len(matrix), 1)]
    return values[np.isfinite(values)]


class Alignment(NamedTuple):
    """How features lie to the columns of the classifier.

    Attributes:
        own: mean cosine between a feature and the column of its class.
        missing: of the samples that clients see, the share whose feature is closest in angle to the
            column of a class that the client lacks.
        common: squared length of the mean of all features, each scaled to length 1: 1 if all of
            them are parallel, 0 if their directions cancel out.
    """

    own: float
    missing: float
    common: float


def alignment(
    features: np.ndarray,
    labels: np.ndarray,
    classifier: np.ndarray | None,
    client_counts: np.ndarray,
) -> Alignment:
    """The alignment of features with a linear classifier; NaN where it is not defined.

    The samples stand for those of the clients: a client sees those of a class as often as it has
    training samples of that class.

    Args:
        features: [n, d]; those of length 0 are left out.
        labels: classes, int [n].
        classifier: [C, d], or None.
        client_counts: training samples of each client and class, [K, C].
    """
    lengths = norms(features)
    rows, labels = features[lengths > 0] / lengths[lengths > 0, None], labels[lengths > 0]
    if not len(rows):
        return Alignment(math.nan, math.nan, math.nan)
    common = float(np.sum(rows.mean(axis=0) ** 2))
    if classifier is None:
        return Alignment(math.nan, math.nan, common)
    columns = norms(classifier)
    cosines = rows @ classifier.T / np.where(columns > 0, columns, math.inf)
    # The share of the samples of class y that are closest to column c.
    closest = np.zeros([len(classifier)] * 2)
    np.add.at(closest, (labels, cosines.argmax(axis=1)), 1)
    closest /= np.maximum(closest.sum(axis=1, keepdims=True), 1)
    seen = client_counts[:, np.isin(np.arange(len(classifier)), labels)].sum()
    away = np.sum((client_counts @ closest) * (client_counts == 0))
    return Alignment(
        float(cosines[np.arange(len(rows)), labels].mean()),
        float(away / seen) if seen else math.nan,
        common,
    )


def mean_angles(vectors: np.ndarray, existing: np.ndarray | None = None) -> MeanAngles:
    """Mean angles between the vectors of classes, FedGELA's measure of angle collapse.

    Args:
        vectors: [C, d].
        existing: bool [C], the classes that exist on the client; all by default.

    Returns:
        Mean angles in degrees.
    """
    matrix = angles(vectors)
    mask = np.ones(len(matrix), bool) if existing is None else np.asarray(existing, bool)
    between = matrix[np.ix_(mask, ~mask)]
    return MeanAngles(
        all=mean(pairs(matrix)),
        existing=mean(pairs(matrix[np.ix_(mask, mask)])),
        missing=mean(pairs(matrix[np.ix_(~mask, ~mask)])),
        between=mean(between[np.isfinite(between)]),
    )


def smallest_angle(vectors: np.ndarray) -> float:
    """Smallest angle in degrees between any two of the vectors [C, d]."""
    values = pairs(angles(vectors))
    return float(values.min()) if values.size else float("nan")


def norms(vectors: np.ndarray) -> np.ndarray:
    """Euclidean lengths of vectors [C, d], as [C]."""
    return np.linalg.norm(np.asarray(vectors, np.float64), axis=-1)


def variation(values: np.ndarray) -> float:
    """Coefficient of variation: standard deviation divided by the mean; NaN if the mean is 0."""
    values = _finite(values)
    average = mean(values)
    return float(values.std() / average) if values.size and average else float("nan")


def log_count_correlation(values: np.ndarray, counts: np.ndarray) -> float:
    """Pearson correlation between a value per class, such as a norm, and the log of class counts.

    Args:
        values: [C].
        counts: numbers of samples [C]; classes without samples are ignored.

    Returns:
        -1 to 1; NaN if the counts are equal, or the values are equal up to rounding.
    """
    values, counts = np.asarray(values, np.float64), np.asarray(counts, np.float64)
    kept = (counts > 0) & np.isfinite(values)
    values, logs = values[kept], np.log(counts[kept])
    if values.size < 2 or np.ptp(counts[kept]) == 0:
        return float("nan")
    if np.ptp(values) <= 10 * _ROUNDING * np.abs(values).max():
        return float("nan")
    return float(np.corrcoef(values, logs)[0, 1])


# Features per class.


def class_means(features: np.ndarray, labels: np.ndarray, num_classes: int) -> np.ndarray:
    """Mean feature vector of each class, [C, d]; NaN for a class without samples."""
    features = np.asarray(features, np.float64)
    sums = np.zeros([num_classes, features.shape[1]])
    np.add.at(sums, labels, features)
    counts = np.bincount(labels, minlength=num_classes)[:, None]
    return np.divide(sums, counts, where=counts > 0, out=np.full_like(sums, np.nan))


def centred(means: np.ndarray) -> np.ndarray:
    """Class means [C, d] minus their unweighted mean; rounding errors are set to 0."""
    known = np.isfinite(means).all(axis=1)
    if not known.any():
        return means
    result = means - means[known].mean(axis=0)
    result[norms(result) <= _ROUNDING * norms(means[known]).max()] = 0
    return result


def class_eigenvalues(features: np.ndarray, labels: np.ndarray, num_classes: int) -> np.ndarray:
    """The 50 largest eigenvalues of the covariance matrix of each class's features.

    The covariance is unbiased (divided by n_c - 1). A class of n_c samples has at most n_c - 1
    eigenvalues above 0; the others are 0 and included in the result.

    Returns:
        [C, min(50, d)], in descending order; NaN for a class with fewer than two samples.
    """
    features = np.asarray(features, np.float64)
    result = np.full([num_classes, min(_EIGENVALUES, features.shape[1])], np.nan)
    for label in range(num_classes):
        own = features[labels == label]
        if len(own) < 2:
            continue
        result[label] = _largest_eigenvalues(own - own.mean(axis=0), len(own) - 1)
    return result


def standardized_eigenvalues(
    features: np.ndarray, labels: np.ndarray, num_classes: int
) -> np.ndarray:
    """The 50 largest eigenvalues of FedMR's matrix M of a mini-batch (equation 3 and table 7).

    Each feature is standardized within each class, with the class's mean and unbiased variance. M
    is the covariance of all samples of the batch: their sum of products, divided by n - C, where C
    is the number of classes. Its diagonal is 1, except for features that are constant within a
    class, which are set to 0 there. The result does not change if a feature is multiplied by a
    positive number or shifted.

    Returns:
        [min(50, d)], in descending order, zeros included; NaN if no class has two samples.
    """
    features = np.asarray(features, np.float64)
    standardized = []
    for label in range(num_classes):
        own = features[labels == label]
        if len(own) < 2:
            continue
        spread = own.std(axis=0, ddof=1)
        known = spread > _ROUNDING * np.abs(own).max(axis=0)
        centered = own - own.mean(axis=0)
        standardized.append(np.divide(centered, spread, where=known, out=np.zeros_like(own)))
    if not standardized:
        return np.full(min(_EIGENVALUES, features.shape[1]), np.nan)
    rows = np.concatenate(standardized)
    return _largest_eigenvalues(rows, len(rows) - len(standardized))


def _largest_eigenvalues(rows: np.ndarray, divisor: int) -> np.ndarray:
    """The 50 largest eigenvalues of rowsᵀ·rows / divisor, in descending order, zeros included."""
    result = np.zeros(min(_EIGENVALUES, rows.shape[1]))
    singular = np.linalg.svd(rows, compute_uv=False)[: len(result)]
    result[: len(singular)] = singular**2 / divisor
    return result


def eigenvalue_variance(eigenvalues: np.ndarray, samples: int) -> float:
    """FedMR's table 7: Σ (λ_i - mean of all λ)² / n, over the largest eigenvalues of M.

    A class that fills all directions evenly has a small value. With d uncorrelated features and
    many samples it is 0; with d identical features it is 0.98 d²/n.

    Args:
        eigenvalues: [k], as from `standardized_eigenvalues`.
        samples: n, the size of the mini-batch (paper: 128).
    """
    return float(np.square(eigenvalues - eigenvalues.mean()).sum() / max(samples, 1))


def effective_rank(eigenvalues: np.ndarray) -> float:
    """Effective dimension of a class, (Σλ)² / Σλ² (participation ratio), averaged over classes.

    It is 1 if all variance is in one direction, at most the number of eigenvalues, and independent
    of the scale of the features. NaN if the features of every class are constant.
    """
    squares = (eigenvalues**2).sum(axis=1)
    ratio = np.full(len(squares), np.nan)
    np.divide(eigenvalues.sum(axis=1) ** 2, squares, where=squares > 0, out=ratio)
    return mean(ratio)


def top_share(eigenvalues: np.ndarray) -> float:
    """Fraction of a class's variance in its first direction, 0 to 1, averaged over classes."""
    totals = eigenvalues.sum(axis=1)
    share = np.full(len(totals), np.nan)
    np.divide(eigenvalues[:, 0], totals, where=totals > 0, out=share)
    return mean(share)


# Neural collapse: every measure is 0 at full collapse, and all classes have the same weight.


def nc1(features: np.ndarray, labels: np.ndarray, num_classes: int) -> float:
    """NC1, the variability within classes relative to that between classes: trace(Σ_W Σ_B⁺) / C.

    Σ_W is the mean over classes of the biased covariance of a class (divided by n_c), Σ_B the
    covariance of the class means, ⁺ the pseudo-inverse, and C the number of classes with samples.

    Returns:
        0 or more; NaN with fewer than two classes, or if all class means coincide.
    """
    features = np.asarray(features, np.float64)
    means = class_means(features, labels, num_classes)
    known = np.isfinite(means).all(axis=1)
    total = int(known.sum())
    if total < 2:
        return float("nan")
    # With the singular values s and directions v of the centred means, Σ_B = Σ (s²/C) v vᵀ.
    _, singular, directions = np.linalg.svd(centred(means[known]), full_matrices=False)
    singular, directions = singular[: total - 1], directions[: total - 1]
    above = singular > _ROUNDING * np.linalg.norm(means[known])
    directions, singular = directions[above], singular[above]
    if not singular.size:
        return float("nan")
    within = ((features - means[labels]) @ directions.T) ** 2
    per_class = class_means(within, labels, num_classes)[known].mean(axis=0)
    return float((per_class / (singular**2 / total)).sum() / total)


def nc2_equinorm(vectors: np.ndarray) -> float:
    """NC2: coefficient of variation of the lengths of vectors [C, d] (centred class means)."""
    return variation(norms(vectors))


def nc2_equiangularity(vectors: np.ndarray) -> float:
    """NC2: standard deviation of the cosines between vectors [C, d] of different classes."""
    values = pairs(cosines(vectors))
    return float(values.std()) if values.size else float("nan")


def nc2_maximal_angle(vectors: np.ndarray) -> float:
    """NC2: mean of |cos + 1/(C-1)|, the deviation of the cosines of vectors [C, d] from an ETF."""
    count = np.isfinite(vectors).all(axis=1).sum()
    return mean(np.abs(pairs(cosines(vectors)) + 1 / (count - 1))) if count > 1 else float("nan")


def nc3(classifier: np.ndarray, vectors: np.ndarray) -> float:
    """NC3: ‖W/‖W‖ - M/‖M‖‖, the Frobenius distance between classifier and centred class means.

    Args:
        classifier: W, [C, d].
        vectors: M, centred class means [C, d]; classes with NaN are excluded from both.

    Returns:
        From 0 (equal up to a factor) to 2 (opposite); NaN if W or M is zero.
    """
    known = np.isfinite(vectors).all(axis=1)
    w, m = np.asarray(classifier, np.float64)[known], vectors[known]
    lengths = np.linalg.norm(w), np.linalg.norm(m)
    if not all(lengths):
        return float("nan")
    return float(np.linalg.norm(w / lengths[0] - m / lengths[1]))


def nc4(predictions: np.ndarray, features: np.ndarray, means: np.ndarray) -> float:
    """NC4: fraction of samples for which the model and the nearest class mean disagree.

    Args:
        predictions: classes predicted by the model, int [n].
        features: [n, d].
        means: class means [C, d], not centred; a class with NaN is never nearest.

    Returns:
        0 to 1; NaN without samples.
    """
    features = np.asarray(features, np.float64)
    known = np.flatnonzero(np.isfinite(means).all(axis=1))
    if not known.size or not len(features):
        return float("nan")
    # ‖h - μ‖² without the term ‖h‖², which is the same for every class.
    distances = (means[known] ** 2).sum(axis=1) - 2 * features @ means[known].T
    return mean(known[distances.argmin(axis=1)] != np.asarray(predictions))


# Features.


def feature_statistics(features: np.ndarray) -> FeatureStatistics:
    """Statistics of each feature, for features [n, d]; mean and variance are NaN if n = 0."""
    features = np.asarray(features, np.float64)
    if not len(features):
        features = np.full([1, features.shape[1]], np.nan)
    smallest, largest = features.min(axis=0), features.max(axis=0)
    return FeatureStatistics(
        mean=features.mean(axis=0),
        variance=features.var(axis=0),
        constant=largest == smallest,
        nonpositive=largest <= 0,
    )


def mean(values: ArrayLike) -> float:
    """Mean of the values that are not NaN; NaN if there are none."""
    finite = _finite(values)
    return float(finite.mean()) if finite.size else float("nan")


def _finite(values: ArrayLike) -> np.ndarray:
    values = np.asarray(values, np.float64)
    return values[np.isfinite(values)]
