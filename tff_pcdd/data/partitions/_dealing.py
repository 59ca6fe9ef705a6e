"""Checks and array operations that several partitions share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from tff_pcdd.errors import DataError, SettingError
from tff_pcdd.settings import option

# Streams of randomness. Each has a generator of its own, so that the division of the training set
# does not depend on whether a test set is divided too.
OWNERS, TRAIN, TEST, ORDER = range(4)

# Concentrations of Dirichlet distributions. Beyond these, drawing takes for ever, or sums overflow.
CONCENTRATIONS = (1e-9, 1e6)

# Maximum number of draws; if the smallest client is too small in all of them, partitioning fails.
_MAX_TRIES = 500


def min_samples_option() -> Any:
    """The option `min_samples` of a partition that draws the sizes of clients."""
    return option(
        10,
        "Smallest number of training samples of a client; the partition is redrawn until every "
        "client has at least this number.",
        minimum=0,
    )


def generator(seed: int, stream: int) -> np.random.Generator:
    """The generator of one stream."""
    return np.random.default_rng([seed, stream])


def check_arguments(
    train_labels: npt.ArrayLike,
    test_labels: npt.ArrayLike | None,
    num_clients: int,
    seed: int,
    num_classes: int | None,
) -> tuple[np.ndarray, np.ndarray, int]:
    """Checks the arguments that all partitions have.

    Returns:
        Both label arrays as int64, the second empty if there are no test labels, and the number of
        classes.
    """
    check_positive("num_clients", num_clients)
    if seed != int(seed) or seed < 0:
        raise SettingError("seed", seed, "must be a non-negative integer")
    train = _check_labels("training", train_labels)
    test = _check_labels("test", [] if test_labels is None else test_labels)
    if not train.size:
        raise DataError("there are no training samples to divide")
    largest = max(int(labels.max()) for labels in (train, test) if labels.size)
    if num_classes is None:
        num_classes = largest + 1
    elif largest >= num_classes:
        raise DataError(f"label {largest} does not fit num_classes={num_classes}")
    return train, test, num_classes


def _check_labels(part: str, labels: npt.ArrayLike) -> np.ndarray:
    labels = np.asarray(labels)
    if labels.ndim != 1 or (labels.size and labels.dtype.kind not in "iu"):
        raise DataError(
            f"{part} labels have shape {labels.shape} and type {labels.dtype}: one integer per "
            "sample is needed"
        )
    if labels.size and labels.min() < 0:
        raise DataError(f"{part} labels: {labels.min()} is negative")
    return labels.astype(np.int64)


def check_positive(name: str, value: int) -> None:
    """Raises SettingError unless the value of this argument is a positive integer."""
    if value != int(value) or value < 1:
        raise SettingError(name, value, "must be a positive integer")


def check_concentration(name: str, value: float) -> None:
    """Raises SettingError unless a Dirichlet distribution can have this concentration."""
    if not (np.isfinite(value) and value > 0):
        raise SettingError(name, value, "must be a finite number greater than 0")
    smallest, largest = CONCENTRATIONS
    if not smallest <= value <= largest:
        raise SettingError(name, value, f"must be from {smallest:g} to {largest:g}")


def draw_again(
    draw: Callable[[], np.ndarray],
    num_samples: int,
    num_clients: int,
    min_samples: int,
    concentration: tuple[str, float],
) -> np.ndarray:
    """Draws counts until every client has enough training samples.

    Args:
        draw: returns the number of samples of each client and class, [clients, classes].
        num_samples: the number of training samples.
        num_clients: the number of clients.
        min_samples: the smallest number of training samples of a client.
        concentration: the setting that makes the clients uneven, and its value.

    Raises:
        SettingError: if `min_samples` is negative, or no draw reaches it.
    """
    if min_samples < 0:
        raise SettingError("min_samples", min_samples, "must not be negative")
    if num_clients * min_samples > num_samples:
        raise SettingError(
            "num_clients",
            num_clients,
            f"with min_samples={min_samples}, {num_clients * min_samples} training samples are "
            f"needed, but there are only {num_samples}",
        )
    smallest = -1
    for _ in range(_MAX_TRIES):
        counts = draw()
        smallest = max(smallest, counts.sum(axis=1).min())
        if smallest >= min_samples:
            return counts
    name, value = concentration
    raise SettingError(
        name,
        value,
        f"in {_MAX_TRIES} draws for {num_clients} clients, the smallest client had at most "
        f"{smallest} training samples (min_samples={min_samples}); use a larger {name}, fewer "
        "clients or a smaller min_samples",
    )


def deal(
    labels: np.ndarray, counts: np.ndarray, rng: np.random.Generator
) -> tuple[np.ndarray, ...]:
    """Shuffles each class and gives client k `counts[k, c]` samples of class c, all of them in sum.

    Returns:
        For each client the sorted indices of its samples.
    """
    owner = np.empty(len(labels), np.int64)
    for c in range(counts.shape[1]):
        members = np.flatnonzero(labels == c)
        if members.size:
            owner[rng.permutation(members)] = np.repeat(np.arange(len(counts)), counts[:, c])
    return tuple(np.split(np.argsort(owner, kind="stable"), np.cumsum(counts.sum(axis=1))[:-1]))


def scale(counts: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """Divides the test samples of each class in the ratio of the training samples.

    Args:
        counts: training samples of each client and class, [clients, classes].
        sizes: test samples of each class, [classes].

    Returns:
        Test samples of each client and class, int64 [clients, classes]. A class without training
        samples has no owner, so its test samples are divided evenly.
    """
    scaled = np.zeros_like(counts)
    for c, size in enumerate(sizes):
        weights = counts[:, c] if counts[:, c].any() else np.ones(len(counts))
        scaled[:, c] = cut(weights / weights.sum(), size)
    return scaled


def cut(proportions: np.ndarray, size: int) -> np.ndarray:
    """Divides `size` samples by proportions that sum to 1: integer counts that sum to `size`."""
    # The margin keeps a share that is a whole number in exact arithmetic from losing a sample.
    ends = np.floor(np.cumsum(proportions) * size + 1e-6).astype(np.int64)
    ends[np.flatnonzero(proportions)[-1] :] = size
    return np.diff(np.minimum(ends, size), prepend=0)
