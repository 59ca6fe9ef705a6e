"""Confusion matrices from predicted classes."""

from __future__ import annotations

import numpy as np


def confusion_matrix(labels: np.ndarray, predicted: np.ndarray, num_classes: int) -> np.ndarray:
    """Counts how samples of each class are classified.

    Args:
        labels: integer classes [n].
        predicted: predicted classes [n]; samples with -1 are left out.
        num_classes: number of classes, C.

    Returns:
        int64 [C, C]; rows are true classes, columns are predicted classes.

    Example:
        >>> confusion_matrix(np.array([0, 0, 1]), np.array([0, 1, 1]), 2)
        array([[1, 1],
               [0, 1]])
    """
    labels, predicted = np.asarray(labels, np.int64), np.asarray(predicted, np.int64)
    answered = predicted >= 0
    cells = labels[answered] * num_classes + predicted[answered]
    return np.bincount(cells, minlength=num_classes**2).reshape(num_classes, num_classes)
