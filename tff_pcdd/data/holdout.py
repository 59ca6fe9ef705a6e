"""Validation samples: a part of each client's training samples that is excluded from training."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from tff_pcdd.data.federation import ClientIndices


def hold_out(
    labels: np.ndarray, fraction: float, seed: int | Sequence[int], groups: np.ndarray | None = None
) -> np.ndarray:
    """Chooses a client's validation samples, in about the class proportions of all its samples.

    At least one sample of every class stays in training, so a client trains on as many classes as
    before. Samples left over by rounding come from the classes with the largest remainders; ties
    are broken at random.

    Args:
        labels: integer class of each of the client's samples, [n].
        fraction: share of the samples to hold out, 0 to 1.
        seed: a non-negative integer or a sequence of them, the only source of randomness.
        groups: the group of each sample, [n]; groups are held out as a whole, so their sizes decide
            how close the number comes to the fraction. By default, each sample stands for itself.

    Returns:
        Sorted int64 indices into `labels`.
    """
    labels = np.asarray(labels)
    generator = np.random.default_rng(seed)
    if groups is not None:
        return _hold_out_groups(labels, np.asarray(groups), fraction, generator)
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


def _hold_out_groups(
    labels: np.ndarray, groups: np.ndarray, fraction: float, generator: np.random.Generator
) -> np.ndarray:
    """The same for whole groups, each of which counts for its most common class."""
    classes, y = np.unique(labels, return_inverse=True)
    names, owners = np.unique(groups, return_inverse=True)
    counts = np.zeros((len(names), len(classes)), np.int64)
    np.add.at(counts, (owners, y), 1)
    sizes, left = counts.sum(axis=1), counts.sum(axis=0)
    held = np.zeros(len(names), bool)
    # What a class lacks, or has too many, is made up for by the next one.
    short = 0.0
    for number in generator.permutation(len(classes)):
        own = np.flatnonzero(counts.argmax(axis=1) == number)
        short += fraction * sizes[own].sum()
        for group in generator.permutation(own):
            comes_closer = sizes[group] < 2 * short
            if comes_closer and (left > counts[group])[counts[group] > 0].all():
                held[group] = True
                left = left - counts[group]
                short -= sizes[group]
    return np.flatnonzero(held[owners])


def set_aside(
    clients: Sequence[ClientIndices], held_out: np.ndarray | None
) -> Sequence[ClientIndices]:
    """Moves the samples that the data set itself sets aside to the clients' validation samples.

    They are among the clients' training samples; `held_out` marks them, bool [n], if there are any.
    """
    if held_out is None:
        return clients
    return [
        dataclasses.replace(
            client,
            train=client.train[~held_out[client.train]],
            validation=client.train[held_out[client.train]],
        )
        for client in clients
    ]
