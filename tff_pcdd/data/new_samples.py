"""Samples in files of arrays and in LEAF's JSON files, for a model that is asked about them.

The files are those that training reads: an .npz file or a folder with one for each client, a JSON
file or a folder of them.
"""

from __future__ import annotations

import itertools
import pathlib
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from tff_pcdd.data.input_spec import IMAGE, TEXT, VECTOR
from tff_pcdd.data.sources import npz
from tff_pcdd.data.sources._arrays import as_inputs, class_labels, known_classes
from tff_pcdd.data.sources._leaf_formats import ALPHABET, as_floats
from tff_pcdd.data.sources._leaf_json import index_files
from tff_pcdd.data.sources._names import Row, as_names, check_vector, is_missing
from tff_pcdd.data.sources.leaf import SOURCES
from tff_pcdd.errors import DataError
from tff_pcdd.text import listed

# What stands for a character outside of LEAF's alphabet: another one outside of it.
_UNKNOWN = "\ufffd"

_ARRAYS, _LEAF = ".npz", ".json"

# A single array, of which the reader of the others says what to do.
_ARRAY = ".npy"

# What the inputs of an exported model are called.
_KINDS = {"images": IMAGE, "features": VECTOR, "texts": TEXT}


class NewSamples(NamedTuple):
    """Samples that a model is asked about.

    Attributes:
        ids: what each is called.
        x: the inputs: images or vectors [n, …], texts [n] as objects, the cells of a table [n,
            columns], or paths of image files.
        labels: their classes; empty if they are not known.
        sites: the clients that they belong to; empty if they are not known.
        shown: what messages call each image file.
    """

    ids: Sequence[str]
    x: np.ndarray | list[pathlib.Path]
    labels: Sequence[str] = ()
    sites: Sequence[str] = ()
    shown: Sequence[str] = ()


def are_arrays(path: pathlib.Path) -> bool:
    """Whether a path is an .npz file, or a folder that holds nothing else."""
    return path.suffix.lower() == _ARRAY or _holds(path, _ARRAYS)


def are_leaf(path: pathlib.Path) -> bool:
    """Whether a path is a JSON file, or a folder that holds nothing else."""
    return _holds(path, _LEAF)


def _holds(path: pathlib.Path, suffix: str) -> bool:
    if not path.is_dir():
        return path.suffix.lower() == suffix
    names = [each.name for each in path.iterdir() if not each.name.startswith(".")]
    return bool(names) and all(name.lower().endswith(suffix) for name in names)


def within(folder: pathlib.Path) -> str:
    """The end of an error about a folder: which folder in it holds samples; empty for none."""
    for found in (folder / "test", folder / "data" / "test"):
        if found.is_dir() and (are_arrays(found) or are_leaf(found)):
            return f"; {found} does hold samples"
    return ""


def of_arrays(path: pathlib.Path) -> NewSamples:
    """The samples of an .npz file, or of a folder with one for each client.

    Only x is needed; y and site say what the samples are and whose. Missing ones are empty.

    Raises:
        DataError: if it cannot be read, or the arrays do not fit each other.
    """
    place = str(path)
    if of_clients := path.is_dir() or npz.is_of_client(path):
        files = npz.files_in(path) if path.is_dir() else [path]
        arrays = npz.read_clients(path, [("test", each) for each in files])
    else:
        arrays = npz.read_arrays(path, ("x",))
    x = as_inputs(arrays["x"], place)
    given = {
        what: check_vector(arrays[name], len(x), what, place)
        for name, what in (("y", "label"), ("site", "site"))
        if name in arrays
    }
    numbers = range(len(x))
    found = {what: names(values.tolist(), what, place, numbers) for what, values in given.items()}
    if "class_names" in arrays and "label" in given:
        known = known_classes(arrays["class_names"], place)
        found["label"] = class_labels(given["label"], known, place, numbers)
    labels, sites = (found.get(what, []) for what in ("label", "site"))
    ids = [f"sample {number}" for number in range(len(x))]
    return NewSamples(_by_client(sites) if of_clients else ids, x, labels, sites)


def names(values: Sequence[Any], what: str, place: str, rows: Sequence[Row]) -> list[str]:
    """Labels or sites as names; empty where one is missing.

    Args:
        values, what, place, rows: as for `as_names`.

    Raises:
        DataError: if a value is no name.
    """
    there = [index for index, value in enumerate(values) if not is_missing(value)]
    found = [""] * len(values)
    named = as_names(
        [values[index] for index in there], what, place, [rows[index] for index in there]
    )
    for index, name in zip(there, named, strict=True):
        found[index] = name
    return found


def of_leaf(
    path: pathlib.Path,
    takes: str,
    shape: tuple[int, ...],
    dtype: np.dtype,
    class_names: Sequence[str],
) -> NewSamples:
    """The samples of LEAF's JSON files, with their labels and users.

    Args:
        path: a file, or a folder of files.
        takes: the input of the model: "images", "features" or "texts".
        shape: the shape of one input; empty for texts.
        dtype: the type of the input.
        class_names: the classes of the model, which tell with the shape whose files it was trained
            on.

    Raises:
        DataError: if the model was trained on none of them, or a file cannot be read.
    """
    fitting = [cls for cls in SOURCES.values() if cls.info.kind == _KINDS[takes]]
    known = [
        cls
        for cls in fitting
        if [*cls.class_names[: len(class_names)]] == [*class_names]
        and (takes == "texts" or cls.input_shape == shape)
    ]
    if not known:
        inputs = ", ".join(map(str, ("n", *shape)))
        raise DataError(
            f"{path}: LEAF's JSON files are for models of {', '.join(SOURCES)}; this one was "
            f"trained on none of them: it takes {takes} [{inputs}] and has the classes "
            f"{listed([*class_names])}"
        )
    source = known[0](data_dir=str(path))
    paths = sorted(path.glob(f"*{_LEAF}")) if path.is_dir() else [path]
    entries = index_files(paths, source.limits)
    users = [user for user, entry in entries.items() if entry.size]
    if not users:
        raise DataError(f"{path}: no user has any sample")
    examples, rows = source.read_users(entries, users)
    owners = np.empty(len(examples), object)
    for user, own in zip(users, rows, strict=True):
        owners[own] = user
    sites: list[str] = owners.tolist()
    labels = [source.class_names[label] for label in examples.y]
    x = examples.x
    if takes == "texts":
        x = np.array(["".join(line) for line in np.array([*ALPHABET, _UNKNOWN])[x]], object)
    elif x.dtype != dtype == np.float32:
        x = as_floats(x)
    return NewSamples(_by_client(sites), x, labels, sites)


def _by_client(owners: Sequence[str]) -> list[str]:
    """What samples are called that are numbered for each client, whose samples are together."""
    return [
        f"sample {number} of {owner}"
        for owner, own in itertools.groupby(owners)
        for number, _ in enumerate(own)
    ]
