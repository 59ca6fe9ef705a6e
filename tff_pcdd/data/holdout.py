"""Validation samples: a part of each client's training samples that is excluded from training."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def hold_out(labels: np.ndarray, fraction: float, seed: int | Sequence[int]) -> np.ndarray:
    """Chooses a client's validation samples, in about the class proportions of all its samples.

    At least one sample of every class stays in training, so a client trains on as many classes as
    before. Samples left over by rounding come from the classes with the largest remainders; ties
    are broken at random.

    Args:
        labels: integer class of each of the client's samples, [n].
        fraction: share of the samples to hold out, 0 to 1.
        seed: a non-negative integer or a sequence of them, the only source of randomness.

    Returns:
        Sorted int64 indices into `labels`.
    """
    labels = np.asarray(labels)
    generator = np.random.default_rng(seed)
    classes, sizes = np.unique(labels, return_counts=True)
    exact = fraction * sizes
    wanted = np.minimum(np.floor(exact), sizes - 1).astype(np.int64)
    missing = round(fraction * len(labels)) - wanted.sum()
    # Largest remainders first; a class that would be left without samples is skipped.
    order = generator.permutation(len(classes))
    order = order[np.argsort(-(exact - wanted)[order], kind="stable")]
    able = order[wanted[order] < sizes[order] - 1]
    wanted[able[: max(missing, 0)]] += 1
    # Drawing nothing from a class would need no randomness.
    chosen = [
        generator.choice(np.flatnonzero(labels == classes[c]), wanted[c], replace=False)
        for c in np.flatnonzero(wanted).tolist()
    ]
    return np.sort(np.concatenate([np.empty(0, np.int64), *chosen]))
