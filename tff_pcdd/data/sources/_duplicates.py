"""The same sample more than once: at two sites, in both parts, or under two classes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from tff_pcdd.data.checks import warn


def warn_of_duplicates(
    place: str,
    hashes: np.ndarray,
    owners: dict[str, tuple[str, Sequence]],
    shown: Callable[[int], str],
) -> dict[str, int]:
    """Warns of equal samples with different owners, with their number and an example.

    Args:
        place: the data set, for messages.
        hashes: hash of each sample's stored bytes, [n].
        owners: what is compared: for the key of a count, the words for messages ("at several
            sites"), and the owner of each sample.
        shown: the name of a sample, for messages.

    Returns:
        The number of different samples for each key; without those that do not occur.
    """
    _, groups = np.unique(hashes, return_inverse=True)
    counts = {}
    for key, (words, values) in owners.items():
        _, numbers = np.unique(np.asarray(values), return_inverse=True)
        order = np.lexsort((numbers, groups))
        changes = (np.diff(groups[order]) == 0) & (np.diff(numbers[order]) != 0)
        edges = np.flatnonzero(changes)
        if not edges.size:
            continue
        counts[key] = len(np.unique(groups[order[edges]]))
        one, other = (shown(int(order[edges[0] + i])) for i in (0, 1))
        are = "sample occurs" if counts[key] == 1 else "samples occur"
        warn(f"{place}: {counts[key]} {are} {words}, for example {one} and {other}")
    return counts
