"""Long-tailed class sizes, and the many/medium/few groups that they are reported by.

Source: FedLoGe (Xiao et al., ICLR 2024), section 4.1 and its code. The paper's and this package's
imbalance factor is largest over smallest class (100); the code's is the inverse (0.01).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from tff_pcdd.data.errors import DataError


class ClassGroups(NamedTuple):
    """Classes by frequency, each an int64 array of class indices in ascending order."""

    many: np.ndarray
    medium: np.ndarray
    few: np.ndarray


def long_tail_counts(max_count, imbalance_factor, num_classes) -> np.ndarray:
    """Class sizes that fall exponentially: n_c = ⌊n_max · IF^(-c/(C-1))⌋.

    Args:
        max_count: n_max, the size of class 0.
        imbalance_factor: IF = largest over smallest class, at least 1.
        num_classes: C.

    Returns:
        int64 [C].

    Raises:
        DataError: if an argument is out of bounds or the last class would have no sample.

    Example:
        >>> long_tail_counts(5000, 100, 10).tolist()
        [5000, 2997, 1796, 1077, 645, 387, 232, 139, 83, 50]
    """
    for name, value in (("max_count", max_count), ("num_classes", num_classes)):
        if value != int(value) or value < 1:
            raise DataError(f"{name}={value}: must be a positive integer")
    if not (math.isfinite(imbalance_factor) and imbalance_factor >= 1):
        raise DataError(
            f"imbalance_factor={imbalance_factor}: the largest over the smallest class, at least 1"
        )
    exponents = [-c / max(num_classes - 1, 1) for c in range(num_classes)]
    # Python's powers as in the authors' code; the margin protects whole numbers from rounding.
    counts = [int(max_count * imbalance_factor**exponent + 1e-9) for exponent in exponents]
    if not counts[-1]:
        raise DataError(
            f"imbalance_factor={imbalance_factor} leaves the last class without samples: with "
            f"{max_count} samples in the first class at most {max_count} is possible"
        )
    return np.array(counts, np.int64)


def long_tail_indices(labels, imbalance_factor, seed, max_count=None) -> np.ndarray:
    """Chooses a long-tailed subset; class c keeps `long_tail_counts(...)[c]` random samples.

    Args:
        labels: integer class of every sample, [n]; every class below the largest must occur.
        imbalance_factor: largest over smallest class.
        seed: a non-negative integer; the subset is a function of it.
        max_count: size of class 0. By default that of the smallest class, which every class can
            reach; in a balanced set this is the size of any class.

    Returns:
        Sorted int64 indices into `labels`.

    Raises:
        DataError: if an argument is out of bounds or a class has too few samples.
    """
    labels = np.asarray(labels)
    available = np.bincount(labels.astype(np.int64))
    if not available.size or not available.min():
        missing = int(np.argmin(available)) if available.size else 0
        raise DataError(f"a long tail needs samples of every class, class {missing} has none")
    if max_count is None:
        max_count = int(available.min())
    counts = long_tail_counts(max_count, imbalance_factor, len(available))
    short = np.flatnonzero(counts > available)
    if short.size:
        raise DataError(
            f"max_count={max_count}: class {short[0]} would need {counts[short[0]]} samples and "
            f"has {available[short[0]]}"
        )
    rng = np.random.default_rng(seed)
    chosen = [
        rng.choice(np.flatnonzero(labels == c), count, replace=False)
        for c, count in enumerate(counts)
    ]
    return np.sort(np.concatenate(chosen))


def class_groups(class_counts) -> ClassGroups:
    """Divides the classes into many, medium and few at 75 % and 95 % of the training samples.

    Classes are sorted by size, the largest first. `many` is the smallest run of them that reaches
    75 % of all samples, `medium` the run after it that reaches 95 %, `few` the rest. Of equally
    large classes the one with the smaller index comes first.

    FedLoGe's code counts the samples of all clients' local test sets instead, which rounding makes
    smaller for rare classes: of 100 classes with imbalance 50 it reports 31, 31 and 38 where the
    training samples give 34, 34 and 32. With 10 classes both agree.

    Args:
        class_counts: training samples of each class, [C].

    Returns:
        A `ClassGroups`; a group may be empty.

    Raises:
        DataError: if counts are negative or not one per class.

    Example:
        >>> [group.tolist() for group in class_groups([50, 30, 20, 10, 5, 2])]
        [[0, 1, 2], [3, 4], [5]]
    """
    counts = np.asarray(class_counts)
    if counts.ndim != 1 or (counts < 0).any():
        raise DataError(f"class_counts={class_counts}: one non-negative number per class is needed")
    order = np.argsort(-counts, kind="stable")
    before = np.cumsum(counts[order]) - counts[order]
    # In integers, so that a class that reaches 75 % exactly ends its group.
    many = before * 100 < counts.sum() * 75
    medium = ~many & (before * 100 < counts.sum() * 95)
    return ClassGroups(
        *(np.sort(order[chosen]).astype(np.int64) for chosen in (many, medium, ~many & ~medium))
    )
