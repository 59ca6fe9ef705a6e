"""Settings of the data: which data set, how it is divided, and among how many clients."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from tff_pcdd import settings, text
from tff_pcdd.data import cache, holdout, long_tail, new_clients, partitions, sources, subsets
from tff_pcdd.data.checks import listed, warn
from tff_pcdd.data.federation import ClientIndices, Examples, Federation
from tff_pcdd.data.input_spec import InputSpec
from tff_pcdd.data.new_clients import NewClients
from tff_pcdd.errors import SettingError
from tff_pcdd.settings import WIDE, check_options, choice, option

if TYPE_CHECKING:
    from tff_pcdd.settings import Named

# Combined with the data seed, so that the random choices do not depend on each other.
_TRAIN_SUBSET, _TEST_SUBSET, _TAIL, _VALIDATION = 11, 12, 13, 14


@dataclasses.dataclass(frozen=True)
class DataConfig:
    """Which data a run uses.

    All checks that need no data run on construction; `build` loads the data.

    Attributes:
        source: the data set, a component of `sources` or any other `DataSource`.
        partition: how samples are divided among clients, a component of `partitions` or any other
            `Partition`.
        imbalance_factor: size of the largest class divided by that of the smallest, in the
            long-tailed subset that replaces the training samples before they are divided; None
            keeps all samples.
        max_train_samples: size of a random subset with the same class proportions, for quick runs;
            None keeps all samples.
        max_test_samples: the same for the test samples.
        validation_fraction: share of each client's training samples that is held out for
            validation, class by class; see `holdout.hold_out`.
        new_clients: number of clients that take no part in training; see `NewClients`.
        new_client_names: the names of these clients, which are drawn otherwise.
        new_clients_seed: seed by which they are drawn; None counts as 0.
        seed: seed of all other random choices above; None counts as 0.

    Raises:
        SettingError: if a setting is out of bounds or does not fit the others.

    Example:
        >>> config = DataConfig(partition=partitions.create("class", num_clients=5))
        >>> config.describe()
        'digits, P5C2'
        >>> config.build().num_clients
        5
    """

    heading: ClassVar[str] = "Data"

    source: Named[sources.DataSource] = choice(
        sources.registry, "digits", "The data set; digits comes with the installation."
    )
    partition: Named[partitions.Partition] = choice(
        partitions.registry,
        "class",
        "How samples are divided among clients: class (each client holds some of the classes, "
        "PxCy), dirichlet, iid, quantity (clients of uneven sizes), shards (of the samples sorted "
        "by class), or natural (the users of the data set; the default for sites of your own "
        "data).",
        suggest=lambda fields: fields["source"].suggested_partition(),
    )
    imbalance_factor: float | None = option(
        None,
        "Make the training set long-tailed before it is divided. The value is the size of the "
        "largest class divided by that of the smallest.",
        type=float,
        minimum=1,
    )
    max_train_samples: int | None = option(
        None,
        "Use only this many training samples, with the class proportions of the whole set.",
        type=int,
        minimum=1,
    )
    max_test_samples: int | None = option(
        None,
        "Use only this many test samples, with the class proportions of the whole set.",
        type=int,
        minimum=1,
    )
    validation_fraction: float = option(
        0.0,
        "Share of each client's training samples to hold out, class by class, for choosing the "
        "best round or the best settings.",
        minimum=0,
        maximum=0.9,
    )
    new_clients: int = option(
        0,
        "Clients that take no part in training, drawn once; the trained models are evaluated "
        "there. They stand for clients that join later.",
        minimum=0,
    )
    new_client_names: str | None = option(
        None,
        "The clients that take no part in training, instead of some that are drawn: names "
        "separated by commas, in double quotes if they have commas.",
        type=str,
    )
    seed: int | None = option(
        None,
        "Seed of the partition and of all other random choices of samples; the value of seed by "
        "default.",
        type=int,
        minimum=0,
        maximum=WIDE,
        group="Seeds",
        setting="data_seed",
    )
    new_clients_seed: int | None = option(
        None,
        "Seed by which new_clients are drawn; the value of seed by default.",
        type=int,
        minimum=0,
        maximum=WIDE,
        group="Seeds",
    )

    def __post_init__(self) -> None:
        check_options(self)
        self._check_new_names()
        self.partition.check(self.source)
        if self.partition.keeps_users:
            if self.imbalance_factor is not None:
                raise SettingError(
                    "imbalance_factor",
                    self.imbalance_factor,
                    f"cannot be combined with partition={self.partition.name}, whose client sizes "
                    "come from the data set",
                )
        else:
            self._check_pooled()

    def _check_new_names(self) -> None:
        if (given := self.new_client_names) is None:
            return
        names, reason = self.new.names, ""
        if not names or not all(names):
            reason = "must be names separated by commas"
        elif repeated := [name for name in names if names.count(name) > 1]:
            reason = f"{repeated[0]!r:.80} occurs twice"
        elif self.new_clients:
            reason = f"cannot be combined with new_clients={self.new_clients}, which are drawn"
        if reason:
            raise SettingError("new_client_names", given, reason)

    def _check_pooled(self) -> None:
        """Checks that apply if samples do not stay with their users."""
        for name in self.source.user_options:
            value = getattr(self.source, name)
            if value is not None:
                kept = [
                    name for name, cls in partitions.registry.classes().items() if cls.keeps_users
                ]
                raise SettingError(name, value, f"applies only with partition={'|'.join(kept)}")
        clients = self.partition.known_clients()
        if clients and self.max_train_samples is not None and self.max_train_samples < clients:
            raise SettingError(
                "max_train_samples",
                self.max_train_samples,
                f"must be at least the number of clients, {clients}",
            )

    @property
    def new(self) -> NewClients:
        """Which clients take no part in training."""
        names = new_clients.named(self.new_client_names)
        return NewClients(self.new_clients, names, self.new_clients_seed or 0)

    @property
    def may_hold_out(self) -> bool:
        """Whether there may be validation samples; those of the data set are known once loaded."""
        return bool(self.validation_fraction) or self.source.may_hold_out

    def input_spec(self) -> InputSpec:
        """How raw inputs become model inputs, as far as it is known before they are loaded.

        The type and scale of raw pixels may differ once they are loaded.
        """
        return self.source.input_spec()

    def describe(self) -> str:
        """The data in a few words: data set, partition, new clients and long tail."""
        name, partition, tail = self.descriptions()
        return ", ".join(
            filter(None, (name, partition, self.describe_new_clients(partition), tail))
        )

    def describe_dataset(self) -> str:
        """The data set, new clients and long tail in a few words, without the partition."""
        name, _, tail = self.descriptions()
        return ", ".join(filter(None, (name, self.describe_new_clients(""), tail)))

    def descriptions(self) -> tuple[str, str, str]:
        """Data set, partition and long tail in a few words each.

        The partition is empty if all clients are those of the data set, the long tail without one.
        """
        tailed = (self.imbalance_factor or 1) > 1
        tail = f"imbalance factor {self.imbalance_factor:g}" if tailed else ""
        is_natural = self.partition == partitions.create("natural")
        return self.source.describe(), "" if is_natural else self.partition.describe(), tail

    def describe_new_clients(self, partition: str) -> str:
        """How many clients are new; empty if none is.

        Args:
            partition: what is said of the clients before; may be empty.
        """
        if not (count := self.new.count):
            return ""
        names = text.listed([*map(text.quoted, self.new.names)], 3)
        named = f" ({names})" if names else ""
        return (f"{count} of them new" if partition else text.plural(count, "new client")) + named

    def identify(self) -> str:
        """Data set, partition and long tail by their names, for files that programs read."""
        _, _, tail = self.descriptions()
        return ", ".join(filter(None, (self.source.name, self.partition.describe(), tail)))

    def build(self) -> Federation:
        """Loads the samples and divides them among clients.

        Raises:
            SettingError: if a setting does not fit the data.
            DataError: if data are missing, unreadable or inconsistent.
        """
        seed = self.seed or 0
        pooled = cache.load(self.source, self.partition.request(seed))
        pooled = subsets.keep_samples(
            pooled,
            self._choose_train(pooled.train, seed),
            _subset(pooled.test.y, self.max_test_samples, [seed, _TEST_SUBSET]),
        )
        notes = dict(pooled.notes)
        clients = self.partition.divide(pooled, seed)
        if self.partition.keeps_users:
            kept = [client for client in clients if client.train.size or client.test.size]
            if len(kept) < len(clients):
                left_out = [c.client_id for c in clients if not (c.train.size or c.test.size)]
                notes["clients_left_empty"] = len(left_out)
                warn(
                    f"{self.source.name}: {listed('client', left_out)} left out, without any sample"
                )
            clients = kept
            if len(clients) == 1:
                self._warn_of_one_client(clients[0].client_id)
        held_out = self._hold_out(clients, pooled.train, seed)
        new = self.new.choose([client.client_id for client in held_out])
        return pooled.federation(self.source.name, held_out, notes, new)

    def _warn_of_one_client(self, name: str) -> None:
        """Warns of data with a single site, unless one was asked for."""
        if self.partition.request(0).max_clients != 1:
            column = "site_column" in {field.name for field in dataclasses.fields(self.source)}
            check = "check site_column" if column else "check how the data name sites"
            warn(f"{self.source.describe()}: there is a single site, {name!r:.60}; {check}")

    def _choose_train(self, train: Examples, seed: int) -> np.ndarray | None:
        """Indices of the training samples in use; None for all.

        Samples that the data set itself sets aside for validation are all kept.
        """
        held_out = np.zeros(len(train.y), bool) if train.held_out is None else train.held_out
        trained = np.flatnonzero(~held_out)
        labels = train.y[trained]
        kept = _subset(labels, self.max_train_samples, [seed, _TRAIN_SUBSET])
        if self.imbalance_factor is not None:
            kept = np.arange(len(labels)) if kept is None else kept
            tail = long_tail.long_tail_indices(labels[kept], self.imbalance_factor, [seed, _TAIL])
            kept = kept[tail]
        if kept is None or not held_out.any():
            return kept
        return np.sort(np.concatenate([trained[kept], np.flatnonzero(held_out)]))

    def _hold_out(
        self, clients: Sequence[ClientIndices], train: Examples, seed: int
    ) -> Sequence[ClientIndices]:
        """Moves a part of each client's training samples to its validation samples."""
        if not self.validation_fraction:
            return clients
        if train.held_out is not None:
            raise SettingError(
                "validation_fraction",
                self.validation_fraction,
                f"{self.source.name} has validation samples of its own",
            )
        divided = []
        for number, client in enumerate(clients):
            held = holdout.hold_out(
                train.y[client.train],
                self.validation_fraction,
                [seed, _VALIDATION, number],
                None if train.groups is None else train.groups[client.train],
            )
            divided.append(
                dataclasses.replace(
                    client, train=np.delete(client.train, held), validation=client.train[held]
                )
            )
        if not any(client.validation.size for client in divided):
            raise SettingError(
                "validation_fraction",
                self.validation_fraction,
                "no client has enough samples to hold one out; choose a larger fraction",
            )
        return divided


def load_federation(
    dataset: str,
    partition: str,
    num_clients: int | None = None,
    *,
    seed: int = 0,
    **flat_settings: Any,
) -> Federation:
    """Loads a data set and divides it among clients; the short form of `DataConfig(...).build()`.

    Args:
        dataset: name of a data set, see `sources.names`.
        partition: name of a partition, see `partitions.names`.
        num_clients: number of clients; for "natural" the number of users to take. By default, the
            partition's own default.
        seed: a non-negative integer, the seed of the data.
        **flat_settings: further settings of `DataConfig`, the data set and the partition, such as
            `classes_per_client=2`.

    Returns:
        A `Federation`.

    Raises:
        SettingError: if a setting is unknown, out of bounds or does not fit the others or the data.
        DataError: if data are missing, unreadable or inconsistent.

    Example:
        >>> federation = load_federation("digits", "class", 10, classes_per_client=2)
        >>> (federation.class_counts() > 0).sum(axis=1).tolist()
        [2, 2, 2, 2, 2, 2, 2, 2, 2, 2]
    """
    values: dict[str, Any] = {"dataset": dataset, "partition": partition, "data_seed": seed}
    clients_option = partitions.get(partition).clients_option
    values[clients_option or "num_clients"] = num_clients
    return settings.build(DataConfig, {**values, **flat_settings}).build()


def _subset(labels: np.ndarray, count: int | None, seed: Sequence[int]) -> np.ndarray | None:
    """Indices of a stratified subset; None for all samples."""
    if count is None or count >= len(labels):
        return None
    return subsets.stratified_indices(labels, count, seed)
