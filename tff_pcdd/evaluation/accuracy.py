"""Accuracies, in percent, from counts of correctly classified samples by class.

GA, the accuracy of the global model, is measured on the whole test set. PA, the accuracy of the
personal models, is the mean over all clients with test samples of the accuracy on the client's own
test part, each client counted once, as in the FedGELA and FedLoGe experiments.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np


def accuracy(correct: np.ndarray, total: np.ndarray) -> float:
    """Share of correctly classified samples.

    Args:
        correct: correctly classified samples of each class [C].
        total: samples of each class [C].

    Returns:
        Percent; NaN without samples.
    """
    samples = np.sum(total)
    return float(100.0 * np.sum(correct) / samples) if samples else float("nan")


def balanced_accuracy(correct: np.ndarray, total: np.ndarray) -> float:
    """Mean of the accuracies on each class; classes without samples are left out.

    Args:
        correct: correctly classified samples of each class [C].
        total: samples of each class [C].

    Returns:
        Percent; NaN without samples.
    """
    present = np.asarray(total) > 0
    if not present.any():
        return float("nan")
    return float(100.0 * np.mean(np.asarray(correct)[present] / np.asarray(total)[present]))


def group_accuracy(
    correct: np.ndarray, total: np.ndarray, groups: Mapping[str, Sequence[int]]
) -> dict[str, float]:
    """Accuracy on groups of classes.

    Args:
        correct: correctly classified samples of each class [C].
        total: samples of each class [C].
        groups: classes by group, such as many, medium and few.

    Returns:
        Percent by group; NaN for a group without samples.
    """
    return {
        name: accuracy(np.asarray(correct)[list(classes)], np.asarray(total)[list(classes)])
        for name, classes in groups.items()
    }


def personal_accuracy(correct: np.ndarray, total: np.ndarray) -> float:
    """Mean over clients of their accuracy; clients without samples are left out.

    Args:
        correct: correctly classified samples of each client and class [K, C].
        total: samples of each client and class [K, C].

    Returns:
        Percent; NaN without samples.
    """
    totals = np.sum(total, axis=1)
    tested = totals > 0
    if not tested.any():
        return float("nan")
    return float(100.0 * np.mean(np.sum(correct, axis=1)[tested] / totals[tested]))


def personal_group_accuracy(
    correct: np.ndarray, total: np.ndarray, groups: Mapping[str, np.ndarray]
) -> dict[str, float]:
    """Mean over clients of the accuracy on groups of classes, which differ between clients.

    Args:
        correct: correctly classified samples of each client and class [K, C].
        total: samples of each client and class [K, C].
        groups: whether a class belongs to a group (many, medium, few) at a client, bool [K, C].

    Returns:
        Percent by group. Clients without samples in a group are left out of its mean, as in
        FedLoGe's experiments; NaN if no client is left.
    """
    means = {}
    for name, chosen in groups.items():
        right, samples = (np.sum(part, axis=1, where=chosen) for part in (correct, total))
        values = np.full(len(samples), np.nan)
        np.divide(100.0 * right, samples, out=values, where=samples > 0)
        means[name] = float(np.nanmean(values)) if np.isfinite(values).any() else float("nan")
    return means


def accuracy_bounds(accuracy: float, samples: int) -> tuple[float, float]:
    """Wilson's 95 % interval of an accuracy, given the number of test samples.

    Args:
        accuracy: in percent.
        samples: number of test samples, at least 1.

    Returns:
        The least and the greatest accuracy, in percent.

    Example:
        >>> [round(bound, 1) for bound in accuracy_bounds(80.0, 100)]
        [71.1, 86.7]
    """
    low, high = _wilson(accuracy / 100, samples)
    return 100 * low, 100 * high


# The quantile of the normal distribution for intervals of 95 %.
_QUANTILE = 1.959964


def accuracy_interval(own: float, other: float, samples: int) -> tuple[float, float]:
    """The 95 % interval of the difference of two accuracies, given the number of test samples.

    Newcombe's hybrid score interval (Statistics in Medicine 17, 1998, method 10), from Wilson's
    intervals of both. Both models answer the same samples, which makes it wider than it has to be.

    Args:
        own: an accuracy in percent.
        other: the one that is subtracted from it.
        samples: number of test samples, at least 1.

    Returns:
        The least and the greatest difference, own minus other, in percentage points.

    Example:
        >>> [round(bound, 1) for bound in accuracy_interval(80.0, 60.0, 100)]
        [7.3, 31.9]
    """
    (own_low, own_high), (low, high) = _wilson(own / 100, samples), _wilson(other / 100, samples)
    own, other = own / 100, other / 100
    below = math.hypot(own - own_low, high - other)
    above = math.hypot(own_high - own, other - low)
    return 100 * (own - other - below), 100 * (own - other + above)


def _wilson(share: float, samples: int) -> tuple[float, float]:
    """Wilson's 95 % interval of a share."""
    square = _QUANTILE**2 / samples
    middle = share + square / 2
    half = _QUANTILE * math.sqrt(share * (1 - share) / samples + square / (4 * samples))
    return (middle - half) / (1 + square), (middle + half) / (1 + square)
