"""Features on a plane by t-SNE, and how far such a map can be trusted.

Source: van der Maaten and Hinton, Visualizing Data using t-SNE, JMLR 2008; by scikit-learn. The map
keeps neighbours together; distances between groups, and the sizes of groups, mean nothing.
"""

from __future__ import annotations

import numpy as np
import threadpoolctl
from etils import epy

# They take a second to import, and only this diagnostic needs them.
with epy.lazy_imports():
    from sklearn import manifold, metrics

# The number of neighbours that a sample is placed by: scikit-learn's default, fewer in small sets.
_PERPLEXITY = 30
_NEIGHBOURS = 5


def project(features: np.ndarray, seed: int = 0) -> np.ndarray:
    """The places of samples on a plane.

    Args:
        features: [n, d].
        seed: of the few draws; the same features and seed give the same map.

    Returns:
        float32 [n, 2]; NaN for fewer than four samples, and where all features are the same.
    """
    features = np.asarray(features, np.float32)
    size = len(features)
    if size < 4 or not np.ptp(features, axis=0).any():
        return np.full([size, 2], np.nan, np.float32)
    if features.shape[1] == 1:  # the start needs two directions
        features = np.pad(features, [(0, 0), (0, 1)])
    perplexity = min(_PERPLEXITY, (size - 1) / 3)
    tsne = manifold.TSNE(perplexity=perplexity, init="pca", random_state=seed)
    # Its threads wait for each other a thousand times, which on a busy machine takes minutes; and
    # with one of them the map is the same whatever the number of cores.
    with threadpoolctl.threadpool_limits(1):
        return tsne.fit_transform(features)


def trustworthiness(features: np.ndarray, points: np.ndarray) -> float:
    """Whether neighbours on a map are neighbours among the features (Venna and Kaski, 2001).

    Every sample's five nearest on the map are looked up among its neighbours in the features; those
    further away there than the fifth count against the map, by their rank.

    Args:
        features: [n, d].
        points: the map, [n, 2].

    Returns:
        0 to 1, where 1 means that all are; NaN for maps with NaN.
    """
    if len(points) < 4 or not np.isfinite(points).all():
        return float("nan")
    neighbours = min(_NEIGHBOURS, (len(points) - 1) // 2)
    return float(manifold.trustworthiness(features, points, n_neighbors=neighbours))


def silhouette(points: np.ndarray, labels: np.ndarray) -> float:
    """How well classes keep apart (Rousseeuw, 1987), mean over samples.

    Of a sample it is (b - a)/max(a, b), where a is its mean distance to the others of its class
    and b that to the nearest other class; 0 for the only sample of a class.

    Args:
        points: [n, 2], or features [n, d].
        labels: int [n].

    Returns:
        -1 to 1, where 1 means classes far apart; NaN for a single class, for one sample a class,
        and for points with NaN.
    """
    classes = len(np.unique(labels))
    if not 2 <= classes < len(points) or not np.isfinite(points).all():
        return float("nan")
    return float(metrics.silhouette_score(points, labels))
