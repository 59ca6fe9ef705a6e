"""Accuracies from counts of rightly classified samples by class. All are in percent.

GA, the accuracy of the global model, is taken over the whole test set. PA, that of the personal
models, is the plain mean over all clients with test samples of the accuracy on the client's own
part, as in the FedGELA and FedLoGe experiments.
"""

from collections.abc import Mapping, Sequence

import numpy as np


def accuracy(right: np.ndarray, total: np.ndarray) -> float:
    """Share of samples rightly classified.

    Args:
        right: samples rightly classified, by class [C].
        total: samples, by class [C].

    Returns:
        Percent; NaN without samples.
    """
    samples = np.sum(total)
    return float(100.0 * np.sum(right) / samples) if samples else float("nan")


def balanced_accuracy(right: np.ndarray, total: np.ndarray) -> float:
    """Mean over the classes that have samples of the accuracy on the class; arguments as above."""
    present = np.asarray(total) > 0
    if not present.any():
        return float("nan")
    return float(100.0 * np.mean(np.asarray(right)[present] / np.asarray(total)[present]))


def group_accuracy(
    right: np.ndarray, total: np.ndarray, groups: Mapping[str, Sequence[int]]
) -> dict[str, float]:
    """Accuracy on groups of classes (many, medium, few), NaN for a group without samples."""
    return {
        name: accuracy(np.asarray(right)[list(classes)], np.asarray(total)[list(classes)])
        for name, classes in groups.items()
    }


def personal_accuracy(right: np.ndarray, total: np.ndarray) -> float:
    """Mean over clients of their accuracy, for [K, C]; those without samples are left out."""
    totals = np.sum(total, axis=1)
    tested = totals > 0
    if not tested.any():
        return float("nan")
    return float(100.0 * np.mean(np.sum(right, axis=1)[tested] / totals[tested]))


def personal_group_accuracy(
    right: np.ndarray, total: np.ndarray, groups: Sequence[Mapping[str, Sequence[int]]]
) -> dict[str, float]:
    """Mean over clients of the accuracy on groups of classes, which are each client's own.

    Args:
        right: samples rightly classified, by client and class [K, C].
        total: samples, by client and class [K, C].
        groups: for each client its classes by group (many, medium, few), the same names for all.

    Returns:
        Percent by group. Clients without samples in a group are left out of its mean, as in
        FedLoGe's experiments; NaN where that leaves none.
    """
    by_client = [
        group_accuracy(*counts, own) for *counts, own in zip(right, total, groups, strict=True)
    ]
    columns = {name: np.array([row[name] for row in by_client]) for name in by_client[0]}
    return {
        name: float(np.nanmean(values)) if np.isfinite(values).any() else float("nan")
        for name, values in columns.items()
    }
