"""EMNIST and Shakespeare by user, from the cache of TFF's own loaders.

`tff.simulation.datasets.emnist` and `.shakespeare` download an SQLite file once and read it from
then on. Here the file has to exist already: nothing is downloaded. Both sets come from LEAF, so
their samples are described in `_leaf_formats`. TFF is imported only when one of them is loaded.

EMNIST's images are 28 × 28 × 1, white paper is 1.0. Shakespeare's samples are snippets of text,
from which LEAF's samples are made: a user's snippets are joined by line breaks, and every character
that follows 80 others is the label of a sample whose input is these 80 characters. Users with too
little text for a single sample are left out and counted in the notes (`empty_users`).
"""

from __future__ import annotations

import dataclasses
import os
import pathlib
from collections.abc import Collection, Sequence
from typing import Any, ClassVar

import numpy as np

from tff_pcdd.data.checks import to_float32, to_int32
from tff_pcdd.data.federation import Examples
from tff_pcdd.data.input_spec import IMAGE, TEXT
from tff_pcdd.data.sources import DatasetInfo, DirectorySource, LoadRequest, PooledData, register
from tff_pcdd.data.sources._leaf_formats import (
    ALPHABET,
    SEQUENCE,
    LeafFormat,
    LeafImages,
    LeafText,
    as_floats,
    character_ids,
    grey_levels,
)
from tff_pcdd.data.sources._places import reason_of
from tff_pcdd.errors import DataError, SettingError

# Number of samples that are converted from TensorFlow to NumPy at a time.
_CHUNK = 10_000

Arrays = tuple[np.ndarray, np.ndarray]


@dataclasses.dataclass(frozen=True)
class TffCacheSource(LeafFormat, DirectorySource):
    """A data set in the cache of TFF's loaders.

    Attributes:
        file_name: name of the file with the cached copy.
        loader: module of `tff.simulation.datasets` that makes the copy.
    """

    file_name: ClassVar[str]
    loader: ClassVar[str]

    def client_data(self, folder: pathlib.Path) -> Sequence[Any]:
        """TFF's client data of the training and of the test part."""
        raise NotImplementedError

    def samples(self, dataset: Any) -> Arrays:
        """Inputs and labels of one user's `tf.data.Dataset`."""
        raise NotImplementedError

    def load(self, request: LoadRequest) -> PooledData:
        file = self._file()
        try:
            return self._read(self.client_data(file.parent), request, file)
        except (DataError, SettingError, ImportError):
            raise
        # Libraries raise many kinds of errors for an incomplete file.
        except Exception as error:
            raise DataError(
                f"dataset {self.name}: {file} is unreadable or incomplete ({reason_of(error)}); "
                "delete it and let TFF download it again"
            ) from error

    def check(self) -> None:
        self._file()

    def _file(self) -> pathlib.Path:
        """TFF's copy of the data, which has to exist: TFF's loader would start a download."""
        folder = pathlib.Path(os.path.expanduser(self.data_dir or "~/.tff"))
        file = folder / self.file_name
        if not file.is_file():
            raise DataError(
                f"dataset {self.name}: data_dir={folder} has no {self.file_name}, TFF's cached "
                "copy; create it with "
                f"tff.simulation.datasets.{self.loader}.load_data(cache_dir=...)"
            )
        return file

    def _read(self, parts: Sequence[Any], request: LoadRequest, file: pathlib.Path) -> PooledData:
        """Reads one user after the other until enough of them have samples.

        Args:
            parts: TFF's client data of the training and of the test part.
            request: which users to read.
            file: for messages.
        """
        members = [set(part.client_ids) for part in parts]
        # Drawn by name, so that the choice does not depend on the order in the file.
        users = sorted(members[0] | members[1])
        for user in users:
            # TFF writes the id into a query as it is.
            if "'" in user:
                raise DataError(f"{file}: the user id {user!r:.80} contains a quote")
        wanted = request.max_clients or len(users)
        if request.max_clients is not None:
            users = np.random.default_rng(request.seed).permutation(users).tolist()
        chosen: dict[str, list[Arrays]] = {}
        silent = 0
        for user in users:
            if len(chosen) == wanted:
                break
            own = self._samples_of(user, parts, members, file)
            if any(len(labels) for _, labels in own):
                chosen[user] = own
            else:
                silent += 1
        if not chosen:
            raise DataError(f"{file}: no user has any sample")
        if len(chosen) < wanted and request.max_clients is not None:
            raise SettingError(
                "max_clients", wanted, f"{file} has only {len(chosen)} users with samples"
            )
        names = sorted(chosen)
        read = [_join([chosen[user][part] for user in names]) for part in (0, 1)]
        return self.pool(names, read, notes={"empty_users": silent} if silent else {})

    def _samples_of(
        self,
        user: str,
        parts: Sequence[Any],
        members: Sequence[Collection[str]],
        file: pathlib.Path,
    ) -> list[Arrays]:
        """Inputs and labels of a user in each part, of which `members` has the users."""
        try:
            return [
                self.samples(part.create_tf_dataset_for_client(user))
                if user in ids
                else _nothing(self.input_shape)
                for part, ids in zip(parts, members, strict=True)
            ]
        except DataError as error:
            raise DataError(f"{file}: user {user!r:.80}: {error}") from error


@dataclasses.dataclass(frozen=True)
class _Emnist(LeafImages, TffCacheSource):
    file_name = "emnist_all.sqlite"
    loader = "emnist"
    edition: ClassVar[str]

    def client_data(self, folder: pathlib.Path) -> Sequence[Any]:
        import tensorflow as tf
        import tensorflow_federated as tff

        # Not `emnist.load_data`, which converts labels to int32 without checking them.
        spec = {"label": tf.TensorSpec([], tf.int64), "pixels": tf.TensorSpec([28, 28], tf.float32)}
        return [
            tff.simulation.datasets.load_and_parse_sql_client_data(
                str(folder / self.file_name), spec, f"{self.edition}_{part}"
            )
            for part in ("train", "test")
        ]

    def samples(self, dataset: Any) -> Arrays:
        chunks = list(dataset.batch(_CHUNK).as_numpy_iterator())
        if not chunks:
            return _nothing(self.input_shape)
        pixels = np.concatenate([chunk["pixels"] for chunk in chunks])
        labels = np.concatenate([chunk["label"] for chunk in chunks])
        return grey_levels(to_float32(pixels)[..., None]), to_int32(labels)


@register
@dataclasses.dataclass(frozen=True)
class TffEmnist(_Emnist):
    """TFF's EMNIST with digits and letters."""

    info = DatasetInfo("tff_emnist", IMAGE, 62, LeafImages.input_shape, has_users=True)
    class_numbers = (62,)
    edition = "all"


@register
@dataclasses.dataclass(frozen=True)
class TffEmnistDigits(_Emnist):
    """TFF's EMNIST with digits alone."""

    info = DatasetInfo("tff_emnist_digits", IMAGE, 10, LeafImages.input_shape, has_users=True)
    class_numbers = (10,)
    edition = "digits_only"


@register
@dataclasses.dataclass(frozen=True)
class TffShakespeare(LeafText, TffCacheSource):
    """TFF's Shakespeare."""

    info = DatasetInfo(
        "tff_shakespeare", TEXT, len(ALPHABET), (SEQUENCE,), has_users=True, vocabulary=ALPHABET
    )
    file_name = "shakespeare.sqlite"
    loader = "shakespeare"

    def client_data(self, folder: pathlib.Path) -> Sequence[Any]:
        import tensorflow_federated as tff

        return tff.simulation.datasets.shakespeare.load_data(cache_dir=str(folder))

    def samples(self, dataset: Any) -> Arrays:
        chunks = dataset.batch(_CHUNK).as_numpy_iterator()
        snippets = [snippet.decode("utf-8", "replace") for x in chunks for snippet in x["snippets"]]
        ids = character_ids("\n".join(snippets))
        if len(ids) <= SEQUENCE:
            return _nothing(self.input_shape)
        windows = np.lib.stride_tricks.sliding_window_view(ids, SEQUENCE)[:-1]
        return windows.copy(), ids[SEQUENCE:].astype(np.int32)


def _nothing(shape: tuple[int, ...]) -> Arrays:
    return np.empty((0, *shape), np.uint8), np.empty(0, np.int32)


def _join(samples: Sequence[Arrays]) -> tuple[Examples, list[np.ndarray]]:
    """Users' inputs and labels in one pair of arrays, and the rows of each user."""
    inputs, labels = ([pair[place] for pair in samples] for place in (0, 1))
    if len({x.dtype for x in inputs}) > 1:
        inputs = [as_floats(x) if x.dtype == np.uint8 else x for x in inputs]
    ends = np.cumsum([len(y) for y in labels])
    rows = [np.arange(end - len(y), end) for y, end in zip(labels, ends, strict=True)]
    return Examples(np.concatenate(inputs), np.concatenate(labels)), rows
