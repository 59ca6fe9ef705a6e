"""Sorted shards: samples sorted by class, cut into equal shards that are dealt at random.

Communication-Efficient Learning of Deep Networks from Decentralized Data (FedAvg); H. B. McMahan et
al.; AISTATS 2017; section 3.
"""

from __future__ import annotations

import dataclasses

import numpy as np
import numpy.typing as npt

from tff_pcdd import text
from tff_pcdd.data.partitions import NumClients, Split, register
from tff_pcdd.data.partitions._dealing import (
    OWNERS,
    TEST,
    check_arguments,
    check_positive,
    deal,
    generator,
    scale,
)
from tff_pcdd.errors import SettingError
from tff_pcdd.settings import option


@register
@dataclasses.dataclass(frozen=True)
class Shards(NumClients):
    """Every client holds `shards_per_client` shards of the sorted samples; see `split_shards`."""

    name = "shards"
    main_option = "shards_per_client"

    shards_per_client: int = option(
        2,
        "Number of shards of each client. The training samples are sorted by class and cut into "
        "this number of shards times the number of clients, which are dealt at random.",
        minimum=1,
    )

    def split(
        self, train_labels: np.ndarray, test_labels: np.ndarray, num_classes: int, seed: int
    ) -> Split:
        return split_shards(
            train_labels, test_labels, self.num_clients, self.shards_per_client, seed, num_classes
        )

    def describe(self) -> str:
        return f"{text.plural(self.shards_per_client, 'shard')} each, {self.num_clients} clients"

    def meaning(self) -> str:
        number = self.num_clients * self.shards_per_client
        return (
            f"samples sorted by class and cut into {text.plural(number, 'equal shard')}, of which "
            f"each client has {self.shards_per_client} at random"
        )


def partition_shards(
    labels: npt.ArrayLike, num_clients: int, shards_per_client: int, seed: int
) -> list[np.ndarray]:
    """Sorts the samples by class, cuts them into shards and deals these at random.

    Args:
        labels: integer class of each sample, [n].
        num_clients: the number of clients.
        shards_per_client: the number of shards of every client.
        seed: a non-negative integer, the only source of randomness.

    Returns:
        For each client the sorted indices of its samples; disjoint and complete.

    Raises:
        SettingError: if counts are not positive, or there are fewer samples than shards.
        DataError: if labels are not a vector of non-negative integers, or there are none.

    Example:
        >>> labels = np.repeat(np.arange(4), 6)
        >>> parts = partition_shards(labels, num_clients=2, shards_per_client=2, seed=0)
        >>> [sorted(set(labels[part].tolist())) for part in parts]
        [[0, 2], [1, 3]]
    """
    return list(split_shards(labels, None, num_clients, shards_per_client, seed).train)


def split_shards(
    train_labels: npt.ArrayLike,
    test_labels: npt.ArrayLike | None,
    num_clients: int,
    shards_per_client: int,
    seed: int,
    num_classes: int | None = None,
) -> Split:
    """Deals shards of the sorted training samples, and test samples of the same classes.

    Samples of a class keep their order. The sizes of shards differ by at most one sample. A shard
    may have samples of several classes, and a client several shards of one class, so clients hold
    different numbers of classes. The test samples of each class are divided in the ratio of the
    training samples.

    Args:
        train_labels: integer class of each training sample, [n].
        test_labels: the same for the test samples, or None.
        num_clients: the number of clients.
        shards_per_client: the number of shards of every client.
        seed: a non-negative integer, the only source of randomness.
        num_classes: C; by default one more than the largest label.

    Returns:
        The `Split`; its test parts are empty without `test_labels`.

    Raises:
        SettingError, DataError: see `partition_shards`.
    """
    train, test, num_classes = check_arguments(
        train_labels, test_labels, num_clients, seed, num_classes
    )
    check_positive("shards_per_client", shards_per_client)
    number = num_clients * shards_per_client
    if len(train) < number:
        raise SettingError(
            "shards_per_client",
            shards_per_client,
            f"{num_clients} clients have {number} shards, but there are only {len(train)} training "
            "samples; at least one for each shard is needed",
        )
    shards = np.array_split(np.argsort(train, kind="stable"), number)
    dealt = generator(seed, OWNERS).permutation(number).reshape(num_clients, shards_per_client)
    parts = tuple(np.sort(np.concatenate([shards[n] for n in own])) for own in dealt)
    counts = np.stack([np.bincount(train[part], minlength=num_classes) for part in parts])
    test_counts = scale(counts, np.bincount(test, minlength=num_classes))
    return Split(parts, deal(test, test_counts, generator(seed, TEST)))
