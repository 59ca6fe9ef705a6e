"""From settings to a federation: which data set, divided how, among how many clients."""

from __future__ import annotations

import dataclasses
import math

import numpy as np

from tff_pcdd.data import holdout, long_tail, partitioners, sources
from tff_pcdd.data.errors import DataError
from tff_pcdd.data.federation import TEXT, ClientIndices, Examples, Federation, InputSpec

# What a run's seed is combined with, so that choices do not follow one another.
_TRAIN_SUBSET, _TEST_SUBSET, _TAIL, _VALIDATION = 11, 12, 13, 14


def _split_class(config, train, test, num_classes):
    return partitioners.split_by_class(
        train, test, config.num_clients, config.classes_per_client, config.seed, num_classes
    )


def _split_dirichlet(config, train, test, num_classes):
    return partitioners.split_dirichlet(
        train,
        test,
        config.num_clients,
        config.concentration,
        config.seed,
        config.min_samples,
        num_classes,
        config.assignment,
        config.local_test,
    )


def _split_iid(config, train, test, num_classes):
    return partitioners.split_iid(train, test, config.num_clients, config.seed, num_classes)


# How each partition divides pooled samples; `natural` keeps the users of the set.
_SPLITS = {"class": _split_class, "dirichlet": _split_dirichlet, "iid": _split_iid, "natural": None}

PARTITIONS = tuple(_SPLITS)

# Settings that only one partition reads: the partition, and the value that means "not given".
_BELONGS_TO = {
    "classes_per_client": ("class", None),
    "concentration": ("dirichlet", None),
    "min_samples": ("dirichlet", 10),
    "assignment": ("dirichlet", "class"),
    "local_test": ("dirichlet", "disjoint"),
    "split_centres": ("natural", None),
}

# Those of them that their partition cannot do without.
_REQUIRED = ("classes_per_client", "concentration")

# Settings that only some data sets read.
DATASETS_OF = {"num_classes": ("femnist", "shakespeare"), "split_centres": ("fed_isic2019",)}


@dataclasses.dataclass(frozen=True, kw_only=True)
class DataConfig:
    """Which data a run uses; `check` needs no data, `build` loads them.

    Attributes:
        dataset: a registered data set, see `dataset_names`.
        partition: "class", "dirichlet", "iid", or "natural" for the users of the set.
        num_clients: how many clients; with "natural" how many users are chosen, None for all.
        classes_per_client: of the partition "class".
        concentration: of the partition "dirichlet".
        min_samples: of "dirichlet": smallest number of training samples of a client.
        assignment: of "dirichlet": "class" (FedGELA) or "sample" (FedLoGe).
        local_test: of "dirichlet": "disjoint" or "overlapping" (FedLoGe).
        imbalance_factor: largest over smallest class of the long tail that is cut from the
            training samples before they are divided; None leaves them as they are.
        data_dir: the directory that holds the set.
        num_classes: of LEAF's sets, see `sources.SourceOptions`.
        split_centres: of Fed-ISIC2019 with the partition "natural", see `image_folders`.
        max_train_samples: a random subset with the same class shares, for quick runs.
        max_test_samples: the same for the test samples.
        validation_fraction: share of every client's training samples that is held out for
            validation, class by class; see `holdout.hold_out`.
        augmentation: see `sources.image_spec`.
        input_normalization: "dataset", "imagenet" or "none".
        seed: of all choices above.
    """

    dataset: str = "digits"
    partition: str = "class"
    num_clients: int | None = None
    classes_per_client: int | None = None
    concentration: float | None = None
    min_samples: int = 10
    assignment: str = "class"
    local_test: str = "disjoint"
    imbalance_factor: float | None = None
    data_dir: str | None = None
    num_classes: int | None = None
    split_centres: int | None = None
    max_train_samples: int | None = None
    max_test_samples: int | None = None
    validation_fraction: float = 0.0
    augmentation: str = "none"
    input_normalization: str = "dataset"
    seed: int = 0

    def check(self) -> None:
        """Refuses settings that cannot work, before anything is loaded.

        Raises:
            DataError: one line that names the setting, its value and what would be right.
        """
        info = sources.dataset_info(self.dataset)
        if self.partition not in PARTITIONS:
            raise DataError(f"partition={self.partition!r}: choose one of {', '.join(PARTITIONS)}")
        for name in (
            "num_clients",
            "classes_per_client",
            "max_train_samples",
            "max_test_samples",
            "num_classes",
            "split_centres",
        ):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise DataError(f"{name}={value}: must be a positive integer")
        if self.seed < 0:
            raise DataError(f"seed={self.seed}: must not be negative")
        if not 0 <= self.validation_fraction < 1:
            raise DataError(
                f"validation_fraction={self.validation_fraction}: must be at least 0 and less than "
                "1"
            )
        for name, (partition, absent) in _BELONGS_TO.items():
            value = getattr(self, name)
            if value != absent and self.partition != partition:
                raise DataError(
                    f"{name}={value} belongs to partition={partition}, not to {self.partition}"
                )
            if value is None and name in _REQUIRED and self.partition == partition:
                raise DataError(f"partition={partition}: {name} is missing")
        for name, datasets in DATASETS_OF.items():
            value = getattr(self, name)
            if value is not None and self.dataset not in datasets:
                raise DataError(
                    f"{name}={value} belongs to dataset={' or '.join(datasets)}, not to "
                    f"{self.dataset}"
                )
        self._check_partition(info)
        self._check_source(info)

    def _check_partition(self, info):
        if self.partition == "natural":
            if not info.has_users:
                users = [
                    name for name in sources.dataset_names() if sources.dataset_info(name).has_users
                ]
                raise DataError(
                    f"partition=natural: {self.dataset} has no users of its own, "
                    f"{', '.join(users)} have; choose class, dirichlet or iid"
                )
            if self.imbalance_factor is not None:
                raise DataError(
                    "imbalance_factor: a long tail would tear users' samples out of the partition "
                    "natural; choose class, dirichlet or iid"
                )
        elif self.num_clients is None:
            raise DataError(f"partition={self.partition}: num_clients is missing")
        elif self.max_train_samples is not None and self.max_train_samples < self.num_clients:
            raise DataError(
                f"max_train_samples={self.max_train_samples} does not give every one of "
                f"{self.num_clients} clients a sample"
            )
        if self.partition == "class" and self.classes_per_client > info.num_classes:
            raise DataError(
                f"classes_per_client={self.classes_per_client}: {self.dataset} has "
                f"{info.num_classes} classes"
            )
        # Sets with users may come with fewer classes than their largest edition, see `build`.
        if (
            self.partition == "class"
            and not info.has_users
            and self.num_clients * self.classes_per_client < info.num_classes
        ):
            raise DataError(
                f"{self.num_clients} clients with classes_per_client={self.classes_per_client} "
                f"cannot hold all {info.num_classes} classes of {self.dataset}: at least "
                f"{math.ceil(info.num_classes / self.classes_per_client)} clients or "
                f"{math.ceil(info.num_classes / self.num_clients)} classes per client are needed"
            )
        if self.concentration is not None and not 0 < self.concentration < math.inf:
            raise DataError(f"concentration={self.concentration}: must be greater than 0")
        if self.min_samples < 0:
            raise DataError(f"min_samples={self.min_samples}: must not be negative")
        for name, choices in (
            ("assignment", ("class", "sample")),
            ("local_test", ("disjoint", "overlapping")),
        ):
            if getattr(self, name) not in choices:
                raise DataError(f"{name}={getattr(self, name)!r}: choose {' or '.join(choices)}")
        if self.imbalance_factor is not None and not 1 <= self.imbalance_factor < math.inf:
            raise DataError(
                f"imbalance_factor={self.imbalance_factor}: the largest over the smallest class, "
                "at least 1"
            )

    def _check_source(self, info):
        if info.needs_data_dir and not self.data_dir:
            raise DataError(f"dataset {self.dataset}: data_dir is missing")
        if info.kind == TEXT:
            for name, absent in (("augmentation", "none"), ("input_normalization", "dataset")):
                if getattr(self, name) != absent:
                    raise DataError(f"{name}={getattr(self, name)}: {self.dataset} is text")
        self.input_spec()

    def input_spec(self) -> InputSpec:
        """How raw inputs become model inputs, as far as it is known before they are loaded.

        The type and the scale of raw pixels may turn out to be others.

        Raises:
            DataError: if a setting does not fit the data set.
        """
        info = sources.dataset_info(self.dataset)
        if info.kind == TEXT:
            return InputSpec(TEXT, info.shape, vocabulary=info.vocabulary)
        return sources.image_spec(info, self._source_options())

    def _source_options(self) -> sources.SourceOptions:
        return sources.SourceOptions(
            data_dir=self.data_dir,
            augmentation=self.augmentation,
            input_normalization=self.input_normalization,
            max_clients=self.num_clients if self.partition == "natural" else None,
            num_classes=self.num_classes,
            split_centres=self.split_centres,
            seed=self.seed,
        )

    def build(self) -> Federation:
        """Loads the samples and divides them.

        Raises:
            DataError: if a setting cannot work, or the data are missing, broken or too few.
        """
        self.check()
        source = sources.load_source(self.dataset, self._source_options())
        train_kept = self._choose_train(source.train.y)
        test_kept = _subset(source.test.y, self.max_test_samples, [self.seed, _TEST_SUBSET])
        train, test = _keep(source.train, train_kept), _keep(source.test, test_kept)
        notes = dict(source.notes)
        num_classes = len(source.class_names)
        if self.partition == "natural":
            clients = [
                ClientIndices(
                    user.client_id,
                    _renumber(user.train, train_kept, len(source.train)),
                    _renumber(user.test, test_kept, len(source.test)),
                )
                for user in source.users
            ]
            empty = sum(not client.train.size and not client.test.size for client in clients)
            if empty:
                notes["clients_left_empty"] = empty
            clients = [client for client in clients if client.train.size or client.test.size]
        else:
            split = _SPLITS[self.partition](self, train.y, test.y, num_classes)
            digits = len(str(self.num_clients - 1))
            clients = [
                ClientIndices(f"{k:0{digits}d}", *parts)
                for k, parts in enumerate(zip(split.train, split.test, strict=True))
            ]
        clients = self._hold_out(clients, train.y)
        return Federation(
            name=self.dataset,
            num_classes=num_classes,
            class_names=source.class_names,
            input_spec=source.input_spec,
            train=train,
            test=test,
            clients=tuple(clients),
            notes=notes,
        )

    def _hold_out(self, clients, labels) -> list[ClientIndices]:
        """Moves a part of every client's training samples to its validation samples."""
        if not self.validation_fraction:
            return clients
        divided = []
        for number, client in enumerate(clients):
            seed = [self.seed, _VALIDATION, number]
            held = holdout.hold_out(labels[client.train], self.validation_fraction, seed)
            divided.append(
                dataclasses.replace(
                    client, train=np.delete(client.train, held), validation=client.train[held]
                )
            )
        if not any(client.validation.size for client in divided):
            raise DataError(
                f"validation_fraction={self.validation_fraction}: holds out no sample of any "
                "client; give more"
            )
        return divided

    def _choose_train(self, labels) -> np.ndarray | None:
        """Indices of the training samples in use, None for all."""
        kept = _subset(labels, self.max_train_samples, [self.seed, _TRAIN_SUBSET])
        if self.imbalance_factor is None:
            return kept
        kept = np.arange(len(labels)) if kept is None else kept
        return kept[
            long_tail.long_tail_indices(labels[kept], self.imbalance_factor, [self.seed, _TAIL])
        ]


def load_federation(dataset: str, partition: str, num_clients: int | None = None, **settings):
    """Loads a data set and divides it among clients: `DataConfig(...).build()`.

    Args:
        dataset: a registered data set, see `dataset_names`.
        partition: "class", "dirichlet", "iid" or "natural".
        num_clients: how many clients.
        **settings: further fields of `DataConfig`.

    Returns:
        A `Federation`.

    Raises:
        DataError: if a setting cannot work, or the data are missing, broken or too few.

    Example:
        >>> federation = load_federation("digits", "class", 10, classes_per_client=2)
        >>> (federation.class_counts() > 0).sum(axis=1).tolist()
        [2, 2, 2, 2, 2, 2, 2, 2, 2, 2]
    """
    config = DataConfig(dataset=dataset, partition=partition, num_clients=num_clients, **settings)
    return config.build()


def _subset(labels, count, seed) -> np.ndarray | None:
    if count is None or count >= len(labels):
        return None
    return sources.stratified_indices(labels, count, seed)


def _keep(examples: Examples, kept: np.ndarray | None) -> Examples:
    return examples if kept is None else examples.take(kept)


def _renumber(indices, kept, size) -> np.ndarray:
    """A client's indices after only `kept` of `size` samples are left."""
    if kept is None:
        return indices
    position = np.full(size, -1, np.int64)
    position[kept] = np.arange(len(kept))
    positions = position[indices]
    return positions[positions >= 0]
