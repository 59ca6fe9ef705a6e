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
