"""The data of a federation: pooled examples, and which client holds which of them."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tff_pcdd import text
from tff_pcdd.data import input_checks, new_clients
from tff_pcdd.data.checks import is_unicode, to_int32, warn
from tff_pcdd.data.input_spec import InputSpec
from tff_pcdd.errors import DataError


@dataclasses.dataclass(frozen=True)
class Examples:
    """Samples as they are stored.

    Attributes:
        x: raw inputs, [n, ...]; images stay uint8, image files are paths as bytes.
        y: integer classes from 0, [n]; stored as int32.
        ids: the name of each sample, such as its file or its row in a table, [n]; None if samples
            have no names.
        groups: the patient, video or the like that each sample is of, as whole numbers, [n]; the
            samples of a group stay together. None if each sample stands for itself.
        held_out: which samples the data set itself sets aside for validation, bool [n]; None if it
            does not.

    Raises:
        DataError: if labels are not one integer per input, or one is beyond int32.
    """

    x: np.ndarray
    y: np.ndarray
    ids: np.ndarray | None = None
    groups: np.ndarray | None = None
    held_out: np.ndarray | None = None

    def __post_init__(self) -> None:
        if self.y.ndim != 1 or len(self.x) != len(self.y):
            raise DataError(
                f"{len(self.x)} inputs and labels of shape {self.y.shape}: one label per input is "
                "needed"
            )
        if self.y.dtype.kind not in "iu":
            raise DataError(f"labels are {self.y.dtype}: they must be whole numbers from 0")
        object.__setattr__(self, "y", to_int32(self.y))

    def __len__(self) -> int:
        return len(self.y)

    def take(self, indices: np.ndarray) -> Examples:
        """The samples at `indices`, copied."""
        more = (self.ids, self.groups, self.held_out)
        taken = (None if values is None else values[indices] for values in more)
        return Examples(self.x[indices], self.y[indices], *taken)


@dataclasses.dataclass(frozen=True)
class ClientIndices:
    """The samples of one client, as indices into a federation's pooled examples.

    Attributes:
        client_id: name of the client.
        train: int64 indices into the training examples.
        test: int64 indices into the test examples.
        validation: int64 indices into the training examples, of the samples held out for
            validation; disjoint from `train`.

    Raises:
        DataError: if indices are not a vector of whole numbers.
    """

    client_id: str
    train: np.ndarray
    test: np.ndarray
    validation: np.ndarray = dataclasses.field(default_factory=lambda: np.empty(0, np.int64))

    def __post_init__(self) -> None:
        for part in ("train", "test", "validation"):
            indices = np.asarray(getattr(self, part))
            if not indices.size and indices.dtype.kind == "f":
                # The type that NumPy gives to no values.
                indices = indices.astype(np.int64)
            if indices.ndim != 1 or indices.dtype.kind not in "iu":
                raise DataError(
                    f"client {self.client_id}: {part} indices are {indices.dtype} of shape "
                    f"{indices.shape}; they must be whole numbers, [n]"
                )
            object.__setattr__(self, part, indices)


@dataclasses.dataclass(frozen=True, eq=False)
class Federation:
    """A data set and its division among clients.

    Samples are stored once; clients refer to them by index.

    Attributes:
        name: name of the data set.
        num_classes: number of classes, C.
        class_names: one name per class.
        input_spec: how raw inputs become model inputs.
        train: all training examples, including those held out for validation.
        test: all test examples, on which global models are evaluated.
        clients: the samples of each client that trains.
        new_clients: the samples of each client that takes no part in training. They have the
            numbers after those of `clients`.
        notes: counts of what loading left out or repaired; empty if there was nothing.
        fingerprint: hash of what the samples do not show, such as the contents of image files;
            empty if there is nothing of this kind.
        read_files: the files of a data directory that the samples are from, by their names, as from
            `read_files.listing`; empty if they are not known.

    Raises:
        DataError: if labels, inputs or indices do not fit the other fields, an input is not finite
            or becomes infinite by the input spec, or there are no clients.
    """

    name: str
    num_classes: int
    class_names: tuple[str, ...]
    input_spec: InputSpec
    train: Examples
    test: Examples
    clients: tuple[ClientIndices, ...]
    notes: dict[str, int] = dataclasses.field(default_factory=dict)
    fingerprint: str = ""
    read_files: Mapping[str, Any] = dataclasses.field(default_factory=dict, repr=False)
    new_clients: tuple[ClientIndices, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "class_names", tuple(self.class_names))
        object.__setattr__(self, "clients", tuple(self.clients))
        object.__setattr__(self, "new_clients", tuple(self.new_clients))
        if len(self.class_names) != self.num_classes:
            raise DataError(f"{len(self.class_names)} class names for {self.num_classes} classes")
        if not self.clients:
            raise DataError(f"{self.name}: there are no clients")
        if len(set(self.every_id)) < len(self.every_client):
            raise DataError(f"{self.name}: client ids repeat")
        for client_id in self.every_id:
            if not is_unicode(client_id):
                raise DataError(f"{self.name}: client id {client_id!r:.80} is not valid Unicode")
        if not len(self.test):
            warn(f"{self.name}: there are no test samples, so no accuracy can be measured")
        for part, examples in (("training", self.train), ("test", self.test)):
            input_checks.check_form(f"{self.name}: {part}", examples.x, self.input_spec)
            if len(examples) and not 0 <= examples.y.min() <= examples.y.max() < self.num_classes:
                from_one = 1 == examples.y.min() <= examples.y.max() == self.num_classes
                raise DataError(
                    f"{self.name}: {part} labels run from {examples.y.min()} to {examples.y.max()},"
                    f" not within 0 to {self.num_classes - 1}"
                    f"{'; subtract 1, because labels count from 0' if from_one else ''}"
                )
            self._check_indices(part, len(examples))
            self._check_finite(part, examples)
            input_checks.check_range(f"{self.name}: {part}", examples.x, self.input_spec)

    def _check_indices(self, part: str, size: int) -> None:
        """Refuses indices of samples that do not exist, or are held out and trained on."""

        def exceed(clients: Sequence[ClientIndices]) -> bool:
            fields = ("test",) if part == "test" else ("train", "validation")
            every = np.concatenate([getattr(own, field) for own in clients for field in fields])
            return bool(every.size) and not 0 <= every.min() <= every.max() < size

        # Of all clients together, because calls for each of them would take longest.
        if exceed(self.every_client):
            client = next(own for own in self.every_client if exceed([own]))
            raise DataError(f"client {client.client_id}: {part} indices exceed {size} samples")
        if part == "test":
            return
        trained = np.zeros(size, bool)
        for own in self.every_client:
            if not own.validation.size:
                continue
            trained[own.train] = True
            if trained[own.validation].any():
                shared = own.validation[trained[own.validation]][0]
                raise DataError(
                    f"client {own.client_id}: the sample {shared} is for training and for "
                    "validation; these parts must be disjoint"
                )
            trained[own.train] = False

    def _check_finite(self, part: str, examples: Examples) -> None:
        """Refuses values that are NaN, or infinite once they are scaled and normalized."""
        place = input_checks.first_nonfinite(examples.x, self.input_spec)
        if place is None:
            return
        row, *position = place
        owners = [
            client.client_id
            for client in self.every_client
            if row in (client.test if part == "test" else [*client.train, *client.validation])
        ]
        raise DataError(
            f"{self.name}: {part} input {row}{f' of client {owners[0]}' if owners else ''}, value "
            f"{tuple(position)}, is {examples.x[place]}: it is "
            f"{'not a number' if np.isnan(examples.x[place]) else 'infinite'} as a float32 model "
            "input"
        )

    @property
    def num_clients(self) -> int:
        """Number of clients that train, K."""
        return len(self.clients)

    @functools.cached_property
    def every_client(self) -> tuple[ClientIndices, ...]:
        """The clients that train, and then the new ones; their positions are their numbers."""
        return self.clients + self.new_clients

    @property
    def every_id(self) -> tuple[str, ...]:
        """Names of these clients, in the same order."""
        return tuple(client.client_id for client in self.every_client)

    @property
    def every_title(self) -> tuple[str, ...]:
        """What pictures call these clients, which tells the new ones."""
        return (*self.client_ids, *(new_clients.title(own.client_id) for own in self.new_clients))

    def with_new_clients(
        self, count: int = 0, seed: int = 0, *, names: Sequence[str] = ()
    ) -> Federation:
        """The same clients, some of which take no part in training.

        Args:
            count: how many of the clients that train become new ones; 0 for none.
            seed: a non-negative integer, by which they are drawn.
            names: the names of those that do, if none is drawn.

        Raises:
            SettingError: no client would be left to train, or there is no client of a name.

        Example:
            >>> from tff_pcdd.data import load_federation
            >>> federation = load_federation("digits", "iid", 5).with_new_clients(2)
            >>> federation.num_clients, len(federation.new_clients), len(federation.every_client)
            (3, 2, 5)
        """
        chosen = new_clients.NewClients(count, tuple(names), seed).choose(self.client_ids)
        training, new = new_clients.split(self.clients, chosen)
        return dataclasses.replace(self, clients=training, new_clients=self.new_clients + new)

    @property
    def clients_without_train(self) -> int:
        """Number of clients without training samples."""
        return sum(not client.train.size for client in self.clients)

    @property
    def client_ids(self) -> tuple[str, ...]:
        """Names of the clients that train, in their order."""
        return tuple(client.client_id for client in self.clients)

    def __repr__(self) -> str:
        found = f"{len(self.train):,} training and {len(self.test):,} test samples"
        clients = text.plural(self.num_clients, "client")
        if self.new_clients:
            clients += f" and {text.plural(len(self.new_clients), 'new one')}"
        return f"Federation({self.name}: {clients}, {self.num_classes} classes, {found})"

    def _repr_html_(self) -> str:
        """The report's grid of who holds what, in notebooks."""
        from tff_pcdd.report import notebook

        return notebook.federation(self)

    def class_counts(self) -> np.ndarray:
        """Training samples of each client and class: read-only int64 [clients, classes]."""
        return self._class_counts

    def every_class_counts(self) -> np.ndarray:
        """The same for every client, the new ones last: int64 [every client, classes]."""
        return self._count(self.train.y, [client.train for client in self.every_client])

    def test_class_counts(self) -> np.ndarray:
        """Local test samples of each client and class: read-only int64 [clients, classes]."""
        return self._test_class_counts

    def counts_of(self, k: int) -> tuple[np.ndarray, np.ndarray]:
        """Training and test samples of each class at client `k`, which may be a new one."""
        own = self.every_client[k]
        train = self._count(self.train.y, [own.train])
        return train[0], self._count(self.test.y, [own.test])[0]

    def validation_class_counts(self) -> np.ndarray:
        """Held-out samples of each client and class: int64 [clients, classes]."""
        return self._count(self.train.y, [client.validation for client in self.clients])

    def client_examples(self, k: int) -> tuple[Examples, Examples]:
        """Training and test examples of client `k`, copied, in their raw type.

        The client may be a new one.
        """
        own = self.every_client[k]
        return self.train.take(own.train), self.test.take(own.test)

    def validation_examples(self, k: int | None = None) -> Examples:
        """Examples held out from training, copied.

        They are those of client `k`, which may be a new one, or of all clients that train.
        """
        clients = self.clients if k is None else self.every_client[k : k + 1]
        return self.train.take(np.concatenate([client.validation for client in clients]))

    def training_examples(self) -> Examples:
        """All training examples except those held out for validation or of new clients."""
        left_out = np.concatenate([client.validation for client in self.clients])
        if self.new_clients:
            new = [part for own in self.new_clients for part in (own.train, own.validation)]
            # Clients may share samples.
            apart = np.setdiff1d(np.concatenate(new), self.trained_samples())
            left_out = np.concatenate([left_out, apart])
        if not left_out.size:
            return self.train
        return self.train.take(np.setdiff1d(np.arange(len(self.train)), left_out))

    def trained_samples(self) -> np.ndarray:
        """Ascending indices of the training examples that clients train on: read-only int64."""
        return self._trained_samples

    def summary(self) -> dict[str, Any]:
        """Sizes and class counts of the federation, as plain values for JSON."""
        counts = self.class_counts()
        held = (counts > 0).sum(axis=1)
        sizes = counts.sum(axis=1)
        return {
            "name": self.name,
            "num_clients": self.num_clients,
            "num_classes": self.num_classes,
            "train_samples": len(self.train),
            "test_samples": len(self.test),
            "validation_samples": sum(client.validation.size for client in self.clients),
            "client_train_samples": _spread(sizes),
            "client_test_samples": _spread(self.test_class_counts().sum(axis=1)),
            "classes_per_client": _spread(held),
            "class_samples": counts.sum(axis=0).tolist(),
            "clients_without_train": self.clients_without_train,
            **({"new_clients": len(self.new_clients)} if self.new_clients else {}),
            **{name: int(value) for name, value in self.notes.items()},
        }

    @functools.cached_property
    def _trained_samples(self) -> np.ndarray:
        found = np.unique(np.concatenate([client.train for client in self.clients]))
        found.flags.writeable = False
        return found

    @functools.cached_property
    def _class_counts(self) -> np.ndarray:
        return self._count(self.train.y, [client.train for client in self.clients])

    @functools.cached_property
    def _test_class_counts(self) -> np.ndarray:
        return self._count(self.test.y, [client.test for client in self.clients])

    def _count(self, labels: np.ndarray, parts: Sequence[np.ndarray]) -> np.ndarray:
        owners = np.repeat(np.arange(len(parts)), [len(part) for part in parts])
        cells = owners * self.num_classes + labels[np.concatenate(parts)]
        counts = np.bincount(cells, minlength=len(parts) * self.num_classes)
        counts = counts.reshape(len(parts), self.num_classes)
        counts.flags.writeable = False
        return counts


def _spread(values: np.ndarray) -> dict[str, float]:
    return {
        "min": int(values.min()),
        "median": float(np.median(values)),
        "mean": float(values.mean()),
        "max": int(values.max()),
    }


def by_largest_class(counts: np.ndarray) -> np.ndarray:
    """The order of clients in pictures of many: by their largest class, then by its share.

    Args:
        counts: samples by client and class, [K, C].

    Returns:
        Their rows, [K]; clients without samples come last.

    Example:
        >>> by_largest_class(np.array([[0, 0], [1, 3], [0, 9], [5, 1]])).tolist()
        [3, 2, 1, 0]
    """
    sizes = counts.sum(axis=1)
    shares = counts.max(axis=1) / np.maximum(sizes, 1)
    return np.lexsort((-shares, counts.argmax(axis=1), sizes == 0))
