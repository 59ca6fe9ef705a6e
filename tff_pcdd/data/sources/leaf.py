"""FEMNIST, Shakespeare, Sent140 and synthetic data in LEAF's JSON layout, by user.

LEAF: A Benchmark for Federated Settings; S. Caldas et al.; 2018. A directory holds one or more
files with the keys `users`, `num_samples` and `user_data`; `user_data` holds `x` and `y` of each
user. Only the requested users are parsed, one at a time, into arrays that are allocated once.
"""

from __future__ import annotations

import contextlib
import dataclasses
import mmap
import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tff_pcdd.data.checks import first_outside
from tff_pcdd.data.federation import Examples, Federation
from tff_pcdd.data.input_spec import IMAGE, TEXT, VECTOR
from tff_pcdd.data.sources import DatasetInfo, LoadRequest, PooledData, register
from tff_pcdd.data.sources._json import parse
from tff_pcdd.data.sources._leaf_formats import (
    ALPHABET,
    LeafFormat,
    LeafImages,
    LeafText,
    LeafTweets,
    LeafVectors,
    as_floats,
)
from tff_pcdd.data.sources._leaf_json import Entry, LeafDirectory, index, mapped
from tff_pcdd.errors import DataError, SettingError
from tff_pcdd.settings import option

# What is known about all of them.
_USERS: Mapping[str, Any] = {"has_users": True, "needs_data_dir": True}


@dataclasses.dataclass(frozen=True)
class LeafSource(LeafFormat, LeafDirectory):
    """A data set in the directory layout of LEAF's own scripts."""

    num_classes: int | None = option(
        None,
        "Number of classes; by default that of the smallest edition that contains all labels.",
        type=int,
        minimum=1,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        largest = len(self.class_names)
        if self.num_classes is not None and self.num_classes > largest:
            raise SettingError(
                "num_classes", self.num_classes, f"{self.name} has 1 to {largest} classes"
            )

    def least_classes(self) -> int:
        return self.num_classes or super().least_classes()

    def load(self, request: LoadRequest) -> PooledData:
        folder = self.folder()
        return self.load_folders(folder / "train", folder / "test", request)

    def load_folders(
        self, train_dir: str | os.PathLike, test_dir: str | os.PathLike, request: LoadRequest
    ) -> PooledData:
        """Like `load`, but from two given directories of JSON files."""
        parts = [index(folder, self.limits) for folder in (train_dir, test_dir)]
        sizes: dict[str, int] = {}
        for part in parts:
            for user, entry in part.items():
                sizes[user] = sizes.get(user, 0) + entry.size
        users = [user for user, size in sizes.items() if size]
        notes = {"empty_users": len(sizes) - len(users)} if len(users) < len(sizes) else {}
        if not users:
            raise DataError(f"{train_dir} and {test_dir}: no user has any sample")
        if request.max_clients is not None:
            users = _choose(users, request.max_clients, request.seed, train_dir)
        read = [self.read_users(part, users) for part in parts]
        return self.pool(users, read, self.num_classes, notes)

    def read_users(
        self, entries: Mapping[str, Entry], users: Sequence[str]
    ) -> tuple[Examples, list[np.ndarray]]:
        """The samples of the given users in one pair of arrays, and the rows of each user.

        Raises:
            DataError: if the data of a user have another form; names the file and the user.
        """
        wanted = [user for user in users if user in entries]
        total = sum(entries[user].size for user in wanted)
        x = np.empty((total, *self.input_shape), np.uint8)
        y = np.empty(total, np.int32)
        rows = {user: np.empty(0, np.int64) for user in users}
        done = 0
        with contextlib.ExitStack() as stack:
            path = None
            # In the order of the files, so that each file is opened once.
            for user in sorted(wanted, key=lambda user: (entries[user].path, entries[user].start)):
                entry = entries[user]
                if entry.path != path:
                    stack.close()
                    path = entry.path
                    text = stack.enter_context(mapped(path))
                inputs, labels = self._parse_user(text, entry, user)
                if inputs.dtype != x.dtype and x.dtype == np.uint8:
                    x = as_floats(x)
                if inputs.dtype != x.dtype:
                    inputs = as_floats(inputs)
                rows[user] = np.arange(done, done + entry.size)
                x[rows[user]], y[rows[user]] = inputs, labels
                done += entry.size
        return Examples(x, y), [rows[user] for user in users]

    def _parse_user(
        self, text: mmap.mmap, entry: Entry, user: str
    ) -> tuple[np.ndarray, np.ndarray]:
        """Inputs and labels of a user in a file."""
        where = f"{entry.path}: user {user!r:.80}"
        value = parse(text, entry.start, entry.end, entry.path, self.limits, user)
        if not isinstance(value, dict) or "x" not in value or "y" not in value:
            raise DataError(f"{where}: the keys 'x' and 'y' are needed")
        x, y = value["x"], value["y"]
        if not isinstance(x, list) or not isinstance(y, list):
            raise DataError(f"{where}: x and y must be lists")
        if not len(x) == len(y) == entry.size:
            raise DataError(
                f"{where}: {len(x)} inputs and {len(y)} labels, but num_samples={entry.size}"
            )
        if not x:
            return np.empty((0, *self.input_shape), np.uint8), np.empty(0, np.int32)
        try:
            inputs, labels = self.parse(x, y)
        except (ValueError, TypeError, OverflowError) as error:
            raise DataError(f"{where}: {error}") from error
        limit = self.num_classes or len(self.class_names)
        row = first_outside(labels, limit)
        if row is not None:
            raise DataError(
                f"{where}: label {labels[row]} is not within 0 to {limit - 1}, in sample {row}"
            )
        return inputs, labels


@register
@dataclasses.dataclass(frozen=True)
class Femnist(LeafImages, LeafSource):
    """Handwritten digits and letters by their writers."""

    info = DatasetInfo("femnist", IMAGE, 62, LeafImages.input_shape, **_USERS)


@register
@dataclasses.dataclass(frozen=True)
class Shakespeare(LeafText, LeafSource):
    """The next character of a text; users are the roles in Shakespeare's plays."""

    info = DatasetInfo(
        "shakespeare", TEXT, len(ALPHABET), LeafText.input_shape, vocabulary=ALPHABET, **_USERS
    )


@register
@dataclasses.dataclass(frozen=True)
class Sent140(LeafTweets, LeafSource):
    """Whether a tweet is positive, from its characters; users are the authors."""

    info = DatasetInfo("sent140", TEXT, 2, LeafTweets.input_shape, vocabulary=ALPHABET, **_USERS)


@register
@dataclasses.dataclass(frozen=True)
class LeafSynthetic(LeafVectors, LeafSource):
    """LEAF's synthetic data: vectors of 60 numbers, a linear task for each user."""

    info = DatasetInfo(
        "leaf_synthetic", VECTOR, len(LeafVectors.class_names), LeafVectors.input_shape, **_USERS
    )


SOURCES: Mapping[str, type[LeafSource]] = {
    cls.name: cls for cls in (Femnist, Shakespeare, Sent140, LeafSynthetic)
}


def load_leaf(
    train_dir: str | os.PathLike,
    test_dir: str | os.PathLike,
    dataset: str,
    *,
    max_clients: int | None = None,
    seed: int = 0,
    num_classes: int | None = None,
) -> Federation:
    """Loads a data set prepared by LEAF; its users become the clients.

    A user may occur in both directories or in one of them. Users without any sample, which LEAF
    writes on purpose, are left out and counted in the federation's notes (`empty_users`).

    FEMNIST images are 28 × 28 × 1, white paper is 1.0. They are kept as uint8 if all pixels are
    grey levels k/255, written with three or more decimals, and as float32 otherwise. Classes are
    the digits, then A to Z, then a to z: the first 10, the first 36 or all 62 of them, depending on
    the labels.

    Shakespeare inputs are 80 characters as ids of LEAF's alphabet (uint8), the label is the id of
    the next character. A character outside the alphabet has the id 80. There are 80 classes, or 81
    if such a character occurs as a label.

    Sent140 inputs are the last 140 characters of a tweet with the same ids; before shorter ones,
    there are line breaks. LEAF's own network reads words instead. Synthetic inputs are vectors of
    60 numbers; the largest label decides how many classes there are.

    Args:
        train_dir: a directory of JSON files.
        test_dir: a directory of JSON files.
        dataset: "femnist", "shakespeare", "sent140" or "leaf_synthetic".
        max_clients: number of users with samples to load, drawn by `seed`; None for all. Data of
            other users are skipped without being parsed.
        seed: a non-negative integer, the only source of randomness.
        num_classes: overrides the number of classes above.

    Returns:
        A `Federation` whose client ids are the user ids, in the order of the files.

    Raises:
        SettingError: if the data set is unknown, it cannot have that many classes, or there are
            fewer than `max_clients` users.
        DataError: if a directory or file is missing, empty or not JSON, keys are missing, lengths
            differ, inputs have another form, labels are out of range, or a user occurs twice;
            names the file, and the user if there is one.
    """
    if dataset not in SOURCES:
        raise SettingError("dataset", dataset, f"choose one of {', '.join(SOURCES)}")
    # Both folders are given, so `data_dir` is not searched for them.
    source = SOURCES[dataset](data_dir=str(pathlib.Path(train_dir)), num_classes=num_classes)
    pooled = source.load_folders(train_dir, test_dir, LoadRequest(max_clients, seed))
    return pooled.federation(dataset)


def _choose(users: Sequence[str], number: int, seed: int, folder: str | os.PathLike) -> list[str]:
    if number > len(users):
        raise SettingError(
            "max_clients", number, f"{folder} has only {len(users)} users with samples"
        )
    # Drawn by name, so that the choice does not depend on how users are spread over files.
    by_name = sorted(users)
    rng = np.random.default_rng(seed)
    chosen = {by_name[i] for i in rng.choice(len(users), number, replace=False)}
    return [user for user in users if user in chosen]
