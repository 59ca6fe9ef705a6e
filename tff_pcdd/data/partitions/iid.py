"""Shuffled samples in nearly equal numbers."""

from __future__ import annotations

import dataclasses

import numpy as np
import numpy.typing as npt

from tff_pcdd.data.partitions import NumClients, Split, register
from tff_pcdd.data.partitions._dealing import TEST, TRAIN, check_arguments, generator
from tff_pcdd.errors import SettingError


@register
@dataclasses.dataclass(frozen=True)
class Iid(NumClients):
    """Shuffled samples in nearly equal numbers; see `split_iid`."""

    name = "iid"

    def split(
        self, train_labels: np.ndarray, test_labels: np.ndarray, num_classes: int, seed: int
    ) -> Split:
        return split_iid(train_labels, test_labels, self.num_clients, seed, num_classes)

    def describe(self) -> str:
        return f"IID, {self.num_clients} clients"


def partition_iid(labels: npt.ArrayLike, num_clients: int, seed: int) -> list[np.ndarray]:
    """Shuffles the samples and deals them out in nearly equal numbers.

    Args:
        labels: integer class of each sample, [n].
        num_clients: the number of clients.
        seed: a non-negative integer, the only source of randomness.

    Returns:
        For each client the sorted indices of its samples; disjoint and complete.

    Raises:
        SettingError: if there are fewer samples than clients, or an argument is out of bounds.
        DataError: if labels are not a vector of non-negative integers, or there are none.
    """
    return list(split_iid(labels, None, num_clients, seed).train)


def split_iid(
    train_labels: npt.ArrayLike,
    test_labels: npt.ArrayLike | None,
    num_clients: int,
    seed: int,
    num_classes: int | None = None,
) -> Split:
    """Shuffles training and test set and deals each out in nearly equal numbers.

    The other arguments are those of `partition_iid`.

    Args:
        train_labels: integer class of each training sample, [n].
        test_labels: the same for the test samples, or None.
        num_classes: only used to check the labels.

    Returns:
        The `Split`; its test parts are empty without `test_labels`.

    Raises:
        SettingError, DataError: see `partition_iid`.
    """
    train, test, _ = check_arguments(train_labels, test_labels, num_clients, seed, num_classes)
    if len(train) < num_clients:
        raise SettingError(
            "num_clients",
            num_clients,
            f"{len(train)} training samples are enough for at most {len(train)} clients",
        )

    def deal(labels: np.ndarray, stream: int) -> tuple[np.ndarray, ...]:
        order = generator(seed, stream).permutation(len(labels))
        return tuple(np.sort(part) for part in np.array_split(order, num_clients))

    return Split(deal(train, TRAIN), deal(test, TEST))
