"""Maps of features to a plane by t-SNE, and measures of their quality.

Source: van der Maaten and Hinton, Visualizing Data using t-SNE, JMLR 2008; computed by
scikit-learn. A map preserves neighborhoods; the sizes of groups and the distances between them
have no meaning.
"""

from __future__ import annotations

import numpy as np
import threadpoolctl
from etils import epy

# These imports take a second, and only this diagnostic needs them.
with epy.lazy_imports():
    from sklearn import manifold, metrics

# Scikit-learn's default; reduced for small sets.
_PERPLEXITY = 30
_NEIGHBORS = 5


def project(features: np.ndarray) -> np.ndarray:
    """Maps samples to points of a plane; the same features always lead to the same map.

    Returns:
        float32 [n, 2]; NaN if there are fewer than four samples or all of them are equal.
    """
    features = np.asarray(features, np.float32)
    size = len(features)
    if size < 4 or not np.ptp(features, axis=0).any():
        return np.full([size, 2], np.nan, np.float32)
    if features.shape[1] == 1:  # init="pca" needs two dimensions
        features = np.pad(features, [(0, 0), (0, 1)])
    perplexity = min(_PERPLEXITY, (size - 1) / 3)
    tsne = manifold.TSNE(perplexity=perplexity, init="pca", random_state=0)
    # One thread makes the map independent of the number of cores. More threads synchronise a
    # thousand times, which takes minutes on a busy machine.
    with threadpoolctl.threadpool_limits(1):
        return tsne.fit_transform(features)


def trustworthiness(features: np.ndarray, points: np.ndarray) -> float:
    """How well the neighbors on a map agree with those in feature space (Venna and Kaski, 2001).

    Each of a sample's five nearest neighbors on the map is penalised if it is not among the five
    nearest in feature space. The penalty grows with its rank there.

    Returns:
        0 to 1, where 1 means that there are no penalties; NaN for maps with NaN.
    """
    if len(points) < 4 or not np.isfinite(points).all():
        return float("nan")
    neighbors = min(_NEIGHBORS, (len(points) - 1) // 2)
    return float(manifold.trustworthiness(features, points, n_neighbors=neighbors))


def silhouette(points: np.ndarray, labels: np.ndarray) -> float:
    """Silhouette coefficient, a measure of the separation of classes (Rousseeuw, 1987).

    The coefficient of a sample is (b - a)/max(a, b), where a is its mean distance to the other
    samples of its class and b that to the samples of the nearest other class; it is 0 for the only
    sample of a class.

    Returns:
        Mean over samples, -1 to 1, where 1 means well separated classes; NaN if there is a single
        class, if every class has one sample, or if a point is NaN.
    """
    classes = len(np.unique(labels))
    if not 2 <= classes < len(points) or not np.isfinite(points).all():
        return float("nan")
    return float(metrics.silhouette_score(points, labels))
