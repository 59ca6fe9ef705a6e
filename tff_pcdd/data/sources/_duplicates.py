"""The same sample more than once: at two sites, in both parts, or under two classes."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from tff_pcdd.data.checks import warn


def warn_of_duplicates(
    place: str,
    hashes: np.ndarray,
    owners: dict[str, tuple[str, npt.ArrayLike]],
    shown: Callable[[int], str],
) -> dict[str, int]:
    """Warns of equal samples with different owners, with an example.

    Args:
        place: the data set, for messages.
        hashes: hash of each sample's stored bytes, [n].
        owners: what is compared: for the key of a count, the words for messages ("at several
            sites"), and the owner of each sample.
        shown: the name of a sample, for messages.

    Returns:
        The counts of different samples that are not zero.
    """
    counts = {}
    for key, (words, values) in owners.items():
        if (found := straddling(hashes, values)) is None:
            continue
        counts[key], *pair = found
        one, other = map(shown, pair)
        are = "sample occurs" if counts[key] == 1 else "samples occur"
        warn(f"{place}: {counts[key]} {are} {words}, for example {one} and {other}")
    return counts


def straddling(keys: npt.ArrayLike, owners: npt.ArrayLike) -> tuple[int, int, int] | None:
    """Samples with equal keys and different owners, each [n].

    Returns:
        The number of such keys, and two samples with the first of them; None if there are none.

    Example:
        >>> straddling(["a", "b", "b", "c"], [1, 1, 2, 2])
        (1, 1, 2)
    """
    _, groups = np.unique(np.asarray(keys), return_inverse=True)
    _, numbers = np.unique(np.asarray(owners), return_inverse=True)
    order = np.lexsort((numbers, groups))
    changes = (np.diff(groups[order]) == 0) & (np.diff(numbers[order]) != 0)
    edges = np.flatnonzero(changes)
    if not edges.size:
        return None
    one, other = order[edges[0] : edges[0] + 2].tolist()
    return len(np.unique(groups[order[edges]])), one, other
