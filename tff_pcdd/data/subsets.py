"""Subsets of the samples, with the class proportions of all of them."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from tff_pcdd.data.federation import ClientIndices, Examples

if TYPE_CHECKING:
    from tff_pcdd.data.sources import PooledData


def stratified_indices(labels: npt.ArrayLike, count: int, seed: int | Sequence[int]) -> np.ndarray:
    """Draws a random subset in which classes keep their proportions, to the nearest sample.

    Args:
        labels: integer class of each sample, [n].
        count: size of the subset; if it exceeds n, all samples are returned.
        seed: a non-negative integer or a sequence of them, the only source of randomness.

    Returns:
        Sorted int64 indices into `labels`.
    """
    labels = np.asarray(labels)
    if count >= len(labels):
        return np.arange(len(labels))
    classes, sizes = np.unique(labels, return_counts=True)
    wanted, rest = np.divmod(sizes * count, len(labels))
    # The samples left over by rounding down go to the largest remainders.
    wanted[np.argsort(-rest, kind="stable")[: count - wanted.sum()]] += 1
    rng = np.random.default_rng(seed)
    chosen = [
        rng.choice(np.flatnonzero(labels == c), size, replace=False)
        for c, size in zip(classes, wanted, strict=True)
    ]
    return np.sort(np.concatenate(chosen))


def keep_samples(data: PooledData, train: np.ndarray | None, test: np.ndarray | None) -> PooledData:
    """Restricts pooled data to samples of some sorted indices; None keeps all.

    Users have the same order and new indices; some may be left empty.
    """
    users = data.users
    if users is not None:
        users = tuple(
            ClientIndices(
                user.client_id,
                _renumber(user.train, train, len(data.train)),
                _renumber(user.test, test, len(data.test)),
            )
            for user in users
        )
    return dataclasses.replace(
        data, train=_take(data.train, train), test=_take(data.test, test), users=users
    )


def _take(examples: Examples, kept: np.ndarray | None) -> Examples:
    return examples if kept is None else examples.take(kept)


def _renumber(indices: np.ndarray, kept: np.ndarray | None, size: int) -> np.ndarray:
    """Indices into `size` samples as indices into the `kept` ones; others are dropped."""
    if kept is None:
        return indices
    position = np.full(size, -1, np.int64)
    position[kept] = np.arange(len(kept))
    positions = position[indices]
    return positions[positions >= 0]
