"""confusion.npz: which classes the global and the personal models take for which."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from tff_pcdd.errors import DamagedFileError
from tff_pcdd.results.reading import Directory
from tff_pcdd.text import name_of
from tff_pcdd.training.file_names import CONFUSION


class Mistake(NamedTuple):
    """Test samples of one class that were taken for another.

    Attributes:
        true, predicted: the names of the classes.
        samples: how many.
        share: which part of the test samples of the true class, from 0 to 1.
    """

    true: str
    predicted: str
    samples: int
    share: float


@dataclasses.dataclass(frozen=True)
class Confusion:
    """Confusion matrices: rows are true classes, columns are predicted ones.

    Attributes:
        classes: the names of the C classes, as they are shown.
        of_global: matrix of the global model on the whole test set, [C, C]; None without one.
        of_clients: matrices of the personal models after their local steps, [K, C, C]; None if the
            run did not save them.
    """

    classes: Sequence[str]
    of_global: np.ndarray | None
    of_clients: np.ndarray | None


def read(directory: Directory, num_clients: int | None) -> Confusion:
    """Reads the confusion matrices of a run.

    Errors as of `Directory`; `num_clients` is None if it is not known.
    """
    arrays = directory.arrays(CONFUSION)
    try:
        names = arrays["class_names"]
        if names.ndim != 1 or names.dtype.kind != "U":
            raise ValueError("class_names is not a list of names")
        size = len(names)
        of_global = _matrices(arrays, "global", (size, size))
        of_clients = _matrices(arrays, "personal", (num_clients, size, size))
    except (KeyError, ValueError) as error:
        raise DamagedFileError(f"{directory.path / CONFUSION} is damaged ({error})") from None
    return Confusion([name_of(name) for name in names], of_global, of_clients)


def _matrices(
    arrays: Mapping[str, np.ndarray], key: str, shape: Sequence[int | None]
) -> np.ndarray | None:
    """An array of counts; None if it was left out."""
    if key not in arrays:
        return None
    found = arrays[key]
    fits = found.ndim == len(shape) and all(
        wanted in (None, size) for wanted, size in zip(shape, found.shape, strict=True)
    )
    if not fits or found.dtype.kind not in "iu" or (found.size and found.min() < 0):
        raise ValueError(f"{key} is not an array of counts of the shape {tuple(shape)}")
    return found


def recall(matrix: np.ndarray) -> list[float | None]:
    """The share of each class's samples that is classified correctly; None without samples.

    Args:
        matrix: [C, C].

    Example:
        >>> recall(np.array([[3, 1], [0, 0]]))
        [0.75, None]
    """
    totals = matrix.sum(axis=1)
    return [
        float(correct / total) if total else None
        for correct, total in zip(matrix.diagonal(), totals, strict=True)
    ]


def mistakes(matrix: np.ndarray, classes: Sequence[str], most: int) -> list[Mistake]:
    """The most frequent mistakes, the largest number of samples first.

    Args:
        matrix: [C, C].
        classes: the names of the C classes.
        most: the greatest length of the list.
    """
    wrong = np.array(matrix)
    np.fill_diagonal(wrong, 0)
    totals = matrix.sum(axis=1)
    order = np.argsort(-wrong, axis=None, kind="stable")[:most]
    pairs = (divmod(int(place), len(classes)) for place in order)
    return [
        Mistake(
            classes[true],
            classes[predicted],
            int(wrong[true, predicted]),
            float(wrong[true, predicted] / totals[true]),
        )
        for true, predicted in pairs
        if wrong[true, predicted]
    ]
