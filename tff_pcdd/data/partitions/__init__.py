"""Partitions: how samples are divided among clients; one registered class per scheme and file.

A partition of your own is a registered class with a method `split`:

    >>> import dataclasses
    >>> import numpy as np
    >>> from tff_pcdd.data import load_federation, partitions
    >>> @partitions.register
    ... @dataclasses.dataclass(frozen=True)
    ... class Blocks(partitions.NumClients):
    ...     name = "blocks"
    ...
    ...     def split(self, train_labels, test_labels, num_classes, seed):
    ...         train, test = (
    ...             tuple(np.array_split(np.arange(len(labels)), self.num_clients))
    ...             for labels in (train_labels, test_labels)
    ...         )
    ...         return partitions.Split(train, test)
    >>> [len(client.train) for client in load_federation("digits", "blocks", 3).clients]
    [480, 479, 479]

Fields made by `tff_pcdd.settings.option` become settings of the partition. An instance of a class
that is not registered can be passed to `DataConfig(partition=...)`.

The built-in schemes work in two steps. First a count matrix says how many samples of each class
each client receives, then the samples of each class are shuffled and dealt out by these counts. The
local test sets are dealt by the same matrix, scaled to the test set, so a client is tested on the
distribution that it trains on. Parts are disjoint and complete unless stated otherwise. Groups of
samples, such as those of a patient, are dealt out as a whole, each as one of its most common class.
"""

from __future__ import annotations

import dataclasses
from typing import ClassVar

import numpy as np

from tff_pcdd.data import sources
from tff_pcdd.data.federation import ClientIndices, Examples
from tff_pcdd.data.sources import DataSource, LoadRequest, PooledData
from tff_pcdd.errors import SettingError
from tff_pcdd.registry import Component, Registry
from tff_pcdd.settings import option


@dataclasses.dataclass(frozen=True)
class Split:
    """A partition of a training and a test set.

    Attributes:
        train: for each client the sorted int64 indices of its training samples.
        test: for each client the sorted int64 indices of its test samples.
    """

    train: tuple[np.ndarray, ...]
    test: tuple[np.ndarray, ...]


@dataclasses.dataclass(frozen=True)
class Partition(Component):
    """Base class of partitions; a subclass implements `split`, or `divide` if it needs users.

    Attributes:
        main_option: field set by the value in short notations such as `dirichlet:0.1`; None if
            there is none.
        clients_option: field set by the number of clients in short notations such as `class:2@50`;
            None if there is none.
        keeps_users: whether clients are made of the users of the data set.
    """

    main_option: ClassVar[str | None] = None
    clients_option: ClassVar[str | None] = None
    keeps_users: ClassVar[bool] = False

    def check(self, source: DataSource) -> None:
        """Refuses data sets that cannot be divided in this way, before they are loaded.

        Raises:
            SettingError: if a setting does not fit the data set.
        """
        if self.keeps_users and not source.info.has_users:
            classes = sources.registry.classes()
            with_users = [name for name, cls in classes.items() if cls.info.has_users]
            raise SettingError(
                "partition",
                self.name,
                f"the samples of {source.name} do not belong to users; those of "
                f"{', '.join(with_users)} do",
            )

    def request(self, seed: int) -> LoadRequest:
        """Which part of the data set has to be loaded."""
        return LoadRequest(seed=seed)

    def divide(self, data: PooledData, seed: int) -> list[ClientIndices]:
        """Divides the samples among clients.

        Args:
            data: the samples; if there are users, their indices refer to them.
            seed: a non-negative integer, the only source of randomness.

        Returns:
            The clients, named "0", "1", … with leading zeros, so that names sort in this order.

        Raises:
            SettingError: if a setting does not fit the samples.
        """
        held_out = data.train.held_out
        if held_out is not None and held_out.any():
            return self._divide_with_validation(data, held_out, seed)
        train, test = _Units(data.train), _Units(data.test)
        try:
            split = self.split(train.labels, test.labels, len(data.class_names), seed)
        except SettingError as error:
            if data.train.groups is None:
                raise
            reason = f"{error.reason} (whole groups are divided, and count as one sample each)"
            raise SettingError(error.setting, error.value, reason) from None
        expected, found = self.known_clients(), (len(split.train), len(split.test))
        if expected is None:
            expected = found[0]
        if found != (expected, expected):
            reason = (
                f"has divided the training samples among {found[0]} clients and the test samples "
                f"among {found[1]}, instead of among {expected}"
            )
            raise SettingError(registry.setting, self.name, reason)
        digits = len(str(len(split.train) - 1))
        return [
            ClientIndices(f"{k:0{digits}d}", train.samples(own), test.samples(own_test))
            for k, (own, own_test) in enumerate(zip(split.train, split.test, strict=True))
        ]

    def _divide_with_validation(
        self, data: PooledData, held_out: np.ndarray, seed: int
    ) -> list[ClientIndices]:
        """As `divide`, where the data set itself sets training samples aside for validation.

        Clients hold the classes of what they train on; the samples for validation are dealt to
        them as those for tests are, each of them once.
        """
        trained, validated = np.flatnonzero(~held_out), np.flatnonzero(held_out)
        bare = dataclasses.replace(data.train, held_out=None)
        parts = bare.take(trained), bare.take(validated)
        clients = self.divide(dataclasses.replace(data, train=parts[0]), seed)
        validation = dataclasses.replace(data, train=parts[0], test=parts[1])
        dealt = self.disjoint().divide(validation, seed)
        return [
            dataclasses.replace(
                client,
                train=np.sort(np.concatenate([trained[client.train], validated[other.test]])),
            )
            for client, other in zip(clients, dealt, strict=True)
        ]

    def split(
        self, train_labels: np.ndarray, test_labels: np.ndarray, num_classes: int, seed: int
    ) -> Split:
        """Divides the samples by their labels.

        Args:
            train_labels: class of each training sample, int32 [n].
            test_labels: class of each test sample, int32 [m].
            num_classes: number of classes, C.
            seed: a non-negative integer, the only source of randomness.

        Raises:
            SettingError: if a setting does not fit the samples.
        """
        raise NotImplementedError

    def disjoint(self) -> Partition:
        """The same partition, which deals each test sample to one client."""
        return self

    def known_clients(self) -> int | None:
        """The number of clients; None if it depends on the data."""
        return None

    def describe(self) -> str:
        """The partition in a few words, for titles and tables."""
        clients = self.known_clients()
        return self.name if clients is None else f"{self.name}, {clients} clients"

    def meaning(self) -> str:
        """What `describe` means, for readers of pages; empty if it says all."""
        return ""


class _Units:
    """What is divided: samples, or whole groups of them.

    Attributes:
        labels: the class of each unit; that of a group is its most common one.
    """

    def __init__(self, examples: Examples):
        self.labels = examples.y
        self._groups = examples.groups
        if self._groups is None:
            return
        _, owners = np.unique(self._groups, return_inverse=True)
        counts = np.zeros((owners.max(initial=-1) + 1, examples.y.max(initial=0) + 1))
        np.add.at(counts, (owners, examples.y), 1)
        self.labels = counts.argmax(axis=1).astype(np.int32)
        # The samples group by group, so that clients need not search all of them.
        self._order = np.argsort(owners, kind="stable")
        self._ends = np.cumsum([0, *np.bincount(owners)])

    def samples(self, units: np.ndarray) -> np.ndarray:
        """The indices of the samples in some units."""
        units = np.asarray(units, np.int64)
        if self._groups is None:
            return units
        ends = self._ends
        parts = [self._order[ends[unit] : ends[unit + 1]] for unit in np.unique(units)]
        return np.sort(np.concatenate([np.empty(0, np.int64), *parts]))


@dataclasses.dataclass(frozen=True)
class NumClients(Partition):
    """Base class of partitions with a given number of clients."""

    clients_option = "num_clients"

    num_clients: int = option(
        10, "Number of clients in the federation.", minimum=1, maximum=2**31 - 1
    )

    def known_clients(self) -> int | None:
        return self.num_clients


registry: Registry[Partition] = Registry("partition", "tff_pcdd.data.partitions")
register = registry.register
names = registry.names
get = registry.get
create = registry.create

__all__ = ["NumClients", "Partition", "Split", "create", "get", "names", "register", "registry"]
