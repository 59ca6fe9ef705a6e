"""EMNIST and Shakespeare by user, as TFF's own loaders keep them in their cache.

`tff.simulation.datasets.emnist` and `.shakespeare` download an SQLite file once and read it from
then on. Here the file has to be there already: nothing is downloaded. Both come from LEAF, so what
is in them is described in `leaf_formats`; TFF is imported when one of them is loaded.

EMNIST's images are 28 × 28 × 1, white paper is 1.0. Shakespeare's are snippets of text, of which
LEAF's samples are made: the snippets of a user, joined by line ends, give a sample for every place
with 80 characters before it, these as input and the one at the place as label. Users too silent for
a single sample are left out and counted in the notes (`empty_users`).
"""

from __future__ import annotations

import contextlib
import pathlib
from collections.abc import Iterator
from typing import Any

import numpy as np

from tff_pcdd.data.errors import DataError
from tff_pcdd.data.federation import ClientIndices, Examples
from tff_pcdd.data.leaf_formats import (
    FEMNIST,
    FORMATS,
    SEQUENCE,
    SHAKESPEARE,
    as_floats,
    character_ids,
    grey_levels,
    make_source,
)
from tff_pcdd.data.sources import DatasetInfo, Source, SourceOptions, register_source

# Samples that are taken out of TensorFlow at a time.
_CHUNK = 10_000


def _info(name: str, like: DatasetInfo, num_classes: int) -> DatasetInfo:
    return DatasetInfo(
        name, like.kind, num_classes, like.shape, has_users=True, vocabulary=like.vocabulary
    )


@register_source(_info("tff_emnist", FEMNIST, 62))
def _load_emnist(info, options):
    return _read_emnist(info, options, only_digits=False)


@register_source(_info("tff_emnist_digits", FEMNIST, 10))
def _load_emnist_digits(info, options):
    return _read_emnist(info, options, only_digits=True)


@register_source(_info("tff_shakespeare", SHAKESPEARE, SHAKESPEARE.num_classes))
def _load_shakespeare(info, options):
    folder, file = _find(info, options, "shakespeare.sqlite")
    import tensorflow_federated as tff

    with _readable(info, file):
        parts = tff.simulation.datasets.shakespeare.load_data(cache_dir=str(folder))
        return _read(parts, FORMATS["shakespeare"], _windows, options, file)


def _read_emnist(info, options, only_digits):
    folder, file = _find(info, options, "emnist_all.sqlite")
    import tensorflow_federated as tff

    with _readable(info, file):
        parts = tff.simulation.datasets.emnist.load_data(only_digits, cache_dir=str(folder))
        return _read(parts, FORMATS["femnist"], _images, options, file, info.num_classes)


def _find(info, options, name) -> tuple[pathlib.Path, pathlib.Path]:
    """The cache and the file in it, without which TFF's loader would turn to the network."""
    folder = pathlib.Path(options.data_dir or pathlib.Path.home() / ".tff").expanduser()
    file = folder / name
    if not file.is_file():
        module = info.name.split("_")[1]
        raise DataError(
            f"dataset {info.name}: data_dir={folder} has no {name}, TFF's cached copy; "
            f"tff.simulation.datasets.{module}.load_data(cache_dir=...) puts it there"
        )
    return folder, file


@contextlib.contextmanager
def _readable(info, file) -> Iterator[None]:
    """Every layer below raises its own types for a file that is not whole."""
    try:
        yield
    except DataError:
        raise
    except Exception as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise DataError(
            f"dataset {info.name}: {file} is unreadable or half-written ({reason}); "
            "delete it and let TFF download it again"
        ) from error


def _read(parts, kind, samples, options: SourceOptions, file, num_classes=None) -> Source:
    """Reads users by turns until there are as many with samples as wanted.

    Args:
        parts: TFF's client data of the training and the test part.
        kind: their format.
        samples: makes a user's inputs and labels of its `tf.data.Dataset`.
        options: of which `max_clients` and `seed` choose users.
        file: for messages.
        num_classes: where it does not follow from the labels.
    """
    members = [set(part.client_ids) for part in parts]
    users = sorted(members[0] | members[1])
    wanted = options.max_clients or len(users)
    # Users are chosen by name, so that the choice does not depend on how the file is ordered.
    order = users
    if options.max_clients is not None:
        order = np.random.default_rng(options.seed).permutation(users).tolist()
    chosen: dict[str, list[tuple[np.ndarray, np.ndarray]]] = {}
    silent = 0
    for user in order:
        if len(chosen) == wanted:
            break
        own = [
            samples(part.create_tf_dataset_for_client(user))
            if user in ids
            else _nothing(kind.shape)
            for part, ids in zip(parts, members, strict=True)
        ]
        if any(len(labels) for _, labels in own):
            chosen[user] = own
        else:
            silent += 1
    if not chosen:
        raise DataError(f"{file}: no user has any sample")
    if len(chosen) < wanted and options.max_clients is not None:
        raise DataError(f"{wanted} clients wanted: {file} has {len(chosen)} users with samples")
    names = sorted(chosen)
    (train, train_rows), (test, test_rows) = (
        _pool([chosen[user][part] for user in names]) for part in (0, 1)
    )
    clients = [
        ClientIndices(user, *rows) for user, *rows in zip(names, train_rows, test_rows, strict=True)
    ]
    notes = {"empty_users": silent} if silent else {}
    return make_source(kind, (train, test), clients, options, num_classes, notes)


def _nothing(shape) -> tuple[np.ndarray, np.ndarray]:
    return np.empty((0, *shape), np.uint8), np.empty(0, np.int32)


def _pool(samples) -> tuple[Examples, list[np.ndarray]]:
    """Users' inputs and labels in one pair of arrays, and the rows of each user."""
    inputs, labels = ([pair[place] for pair in samples] for place in (0, 1))
    if len({x.dtype for x in inputs}) > 1:
        inputs = [as_floats(x) if x.dtype == np.uint8 else x for x in inputs]
    ends = np.cumsum([len(y) for y in labels])
    rows = [np.arange(end - len(y), end) for y, end in zip(labels, ends, strict=True)]
    return Examples(np.concatenate(inputs), np.concatenate(labels)), rows


def _images(dataset: Any) -> tuple[np.ndarray, np.ndarray]:
    """Images [n, 28, 28, 1], uint8 where they are grey levels, and labels int32 [n]."""
    chunks = list(dataset.batch(_CHUNK).as_numpy_iterator())
    if not chunks:
        return _nothing(FEMNIST.shape)
    pixels = np.concatenate([chunk["pixels"] for chunk in chunks])
    labels = np.concatenate([chunk["label"] for chunk in chunks])
    return grey_levels(pixels[..., None]), labels


def _windows(dataset: Any) -> tuple[np.ndarray, np.ndarray]:
    """Inputs, uint8 [n, 80], and labels, int32 [n], of a user's snippets."""
    chunks = dataset.batch(_CHUNK).as_numpy_iterator()
    snippets = [snippet.decode("utf-8", "replace") for x in chunks for snippet in x["snippets"]]
    ids = character_ids("\n".join(snippets))
    if len(ids) <= SEQUENCE:
        return _nothing(SHAKESPEARE.shape)
    windows = np.lib.stride_tricks.sliding_window_view(ids, SEQUENCE)[:-1]
    return windows.copy(), ids[SEQUENCE:].astype(np.int32)
