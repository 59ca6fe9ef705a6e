"""Long-tailed class sizes, and the many, medium and few groups in which results are reported.

Source: FedLoGe (Xiao et al., ICLR 2024), section 4.1 and its code. The imbalance factor is the size
of the largest class over that of the smallest (100), as in the paper; the code uses the inverse
(0.01).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tff_pcdd.errors import DataError, SettingError
from tff_pcdd.text import plural


class ClassGroups(NamedTuple):
    """Classes by frequency, each an int64 array of class indices in ascending order.

    Those of `class_group_masks` are masks.
    """

    many: np.ndarray
    medium: np.ndarray
    few: np.ndarray


def long_tail_counts(max_count: int, imbalance_factor: float, num_classes: int) -> np.ndarray:
    """Exponentially decreasing class sizes n_c = ⌊n_max · IF^(-c/(C-1))⌋.

    Args:
        max_count: n_max, the size of class 0.
        imbalance_factor: IF, the size of the largest class over that of the smallest, at least 1.
        num_classes: C, the number of classes.

    Returns:
        int64 [C].

    Raises:
        SettingError: if an argument is out of bounds or the last class would have no sample.

    Example:
        >>> long_tail_counts(5000, 100, 10).tolist()
        [5000, 2997, 1796, 1077, 645, 387, 232, 139, 83, 50]
    """
    for name, value in (("max_count", max_count), ("num_classes", num_classes)):
        if not math.isfinite(value) or value != int(value) or value < 1:
            raise SettingError(name, value, "must be a positive integer")
    if not (math.isfinite(imbalance_factor) and imbalance_factor >= 1):
        raise SettingError(
            "imbalance_factor", imbalance_factor, "must be a finite number, at least 1"
        )
    exponents = [-c / max(num_classes - 1, 1) for c in range(num_classes)]
    # Computes powers in Python, as the authors' code does; the margin keeps whole numbers from
    # being rounded down.
    counts = [int(max_count * imbalance_factor**exponent + 1e-9) for exponent in exponents]
    if not counts[-1]:
        raise SettingError(
            "imbalance_factor",
            imbalance_factor,
            "leaves the last class without samples; with "
            f"{plural(max_count, 'sample')} in the first class it can be at most {max_count}",
        )
    return np.array(counts, np.int64)


def long_tail_indices(
    labels: npt.ArrayLike,
    imbalance_factor: float,
    seed: int | Sequence[int],
    max_count: int | None = None,
) -> np.ndarray:
    """Draws a long-tailed subset, in which class c keeps `long_tail_counts(...)[c]` random samples.

    Args:
        labels: integer class of each sample, [n]; every class up to the largest must occur.
        imbalance_factor: size of the largest class over that of the smallest, at least 1.
        seed: a non-negative integer or a sequence of them, the only source of randomness.
        max_count: size of class 0. By default the size of the smallest class in `labels`, which
            every class can reach; in a balanced set this is the size of each class.

    Returns:
        Sorted int64 indices into `labels`.

    Raises:
        SettingError: if an argument is out of bounds or a class has no or too few samples for it.
    """
    labels = np.asarray(labels)
    available = np.bincount(labels.astype(np.int64))
    if not available.size or not available.min():
        missing = int(np.argmin(available)) if available.size else 0
        raise SettingError(
            "imbalance_factor",
            imbalance_factor,
            f"needs training samples of every class, and class {missing} has none",
        )
    if max_count is None:
        max_count = int(available.min())
    counts = long_tail_counts(max_count, imbalance_factor, len(available))
    short = np.flatnonzero(counts > available)
    if short.size:
        raise SettingError(
            "max_count",
            max_count,
            f"class {short[0]} would need {plural(counts[short[0]], 'sample')} but has "
            f"{available[short[0]]}",
        )
    rng = np.random.default_rng(seed)
    chosen = [
        rng.choice(np.flatnonzero(labels == c), count, replace=False)
        for c, count in enumerate(counts)
    ]
    return np.sort(np.concatenate(chosen))


def class_groups(class_counts: npt.ArrayLike) -> ClassGroups:
    """Groups the classes into many, medium and few at 75 % and 95 % of the training samples.

    Classes are sorted by size, the largest first; of equally large classes, the one with the
    smaller index comes first. `many` are the smallest number of first classes that hold 75 % of all
    samples; `medium` are the next ones, up to 95 % of the samples; `few` are the rest.

    FedLoGe's code counts the samples of all local test sets instead, where rounding reduces rare
    classes: for 100 classes with imbalance factor 50 it reports groups of 31, 31 and 38 classes,
    while training samples give 34, 34 and 32. For 10 classes both agree.

    Args:
        class_counts: number of training samples of each class, [C].

    Returns:
        A `ClassGroups`; a group may be empty.

    Raises:
        DataError: if a count is negative or the counts are not a vector.

    Example:
        >>> [group.tolist() for group in class_groups([50, 30, 20, 10, 5, 2])]
        [[0, 1, 2], [3, 4], [5]]
    """
    counts = np.asarray(class_counts)
    if counts.ndim != 1 or (counts < 0).any():
        raise DataError("class counts must be one non-negative number per class")
    return ClassGroups(*(np.flatnonzero(mask) for mask in class_group_masks(counts[None])))


def class_group_masks(class_counts: np.ndarray) -> ClassGroups:
    """Groups the classes of each client as `class_groups` does.

    Args:
        class_counts: training samples of each client and class, [K, C].

    Returns:
        A `ClassGroups` of bool [K, C], which say whether a class belongs to the group.
    """
    order = np.argsort(-class_counts, axis=1, kind="stable")
    ordered = np.take_along_axis(class_counts, order, axis=1)
    before = np.empty_like(ordered)
    np.put_along_axis(before, order, np.cumsum(ordered, axis=1) - ordered, axis=1)
    totals = class_counts.sum(axis=1, keepdims=True)
    # In integers, so that a class that reaches exactly 75 % ends its group.
    many = before * 100 < totals * 75
    medium = ~many & (before * 100 < totals * 95)
    return ClassGroups(many, medium, ~many & ~medium)
