"""Data sets in LEAF's json layout, whose samples belong to users: FEMNIST and Shakespeare.

LEAF: A Benchmark for Federated Settings; S. Caldas et al.; 2018. A directory holds one or more
files with the keys `users`, `num_samples` and `user_data`, the last with `x` and `y` per user.

A file is never parsed as a whole: Python's numbers would take twenty times the memory of the
arrays. It is mapped into memory, the places of the users' data are found by counting braces, and
only the chosen users are parsed, one at a time, into arrays that are allocated once.
"""

from __future__ import annotations

import contextlib
import json
import mmap
import pathlib
import re
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from tff_pcdd.data.errors import DataError
from tff_pcdd.data.federation import ClientIndices, Examples, Federation
from tff_pcdd.data.leaf_formats import FEMNIST, FORMATS, SHAKESPEARE, as_floats, make_source
from tff_pcdd.data.sources import DatasetInfo, Source, SourceOptions, register_source


def load_leaf(
    train_dir,
    test_dir,
    dataset: str,
    *,
    max_clients: int | None = None,
    seed: int = 0,
    num_classes: int | None = None,
) -> Federation:
    """Loads a data set that LEAF prepared; its users become the clients.

    Users may stand in both directories or in one of them. Users without any sample are left out
    and counted in the federation's notes (`empty_users`), as LEAF writes them on purpose.

    FEMNIST images are 28 × 28 × 1 with white paper as 1.0. They are kept as uint8 where all pixels
    are grey levels k/255, written with three or more decimals, and as float32 otherwise. Classes
    are the digits, then A–Z, then a–z: as many of 10, 36 or 62 as the labels need.

    Shakespeare inputs are 80 characters as ids of LEAF's alphabet (uint8), the label is the id of
    the next one. A character outside the alphabet has the id 80. There are 80 classes, or 81 if
    such a character is ever the label.

    Args:
        train_dir: a directory of json files.
        test_dir: a directory of json files.
        dataset: "femnist" or "shakespeare".
        max_clients: how many of the users with samples are loaded, chosen by `seed`; None for all.
            Data of the others are skipped, not parsed.
        seed: of that choice.
        num_classes: overrides the number of classes above.

    Returns:
        A `Federation` whose client ids are the user ids, in the order of the files.

    Raises:
        DataError: a line that names the file, and the user where there is one, if a directory or
            file is missing, empty or not json, keys are missing, lengths differ, inputs have
            another form, labels are out of range, a user occurs twice, or there are fewer than
            `max_clients` users.
    """
    source = _read(train_dir, test_dir, dataset, max_clients, seed, num_classes)
    return Federation(
        name=dataset,
        num_classes=len(source.class_names),
        class_names=source.class_names,
        input_spec=source.input_spec,
        train=source.train,
        test=source.test,
        clients=source.users,
        notes=source.notes,
    )


@register_source(FEMNIST)
def _load_femnist(info, options):
    return _load_from(info, options)


@register_source(SHAKESPEARE)
def _load_shakespeare(info, options):
    return _load_from(info, options)


def _load_from(info: DatasetInfo, options: SourceOptions) -> Source:
    """Finds `train` and `test`, also where LEAF's own scripts put them."""
    root = pathlib.Path(options.data_dir).expanduser()
    places = (root, root / "data", root / info.name, root / info.name / "data")
    for folder in places:
        if (folder / "train").is_dir() and (folder / "test").is_dir():
            return _read(
                folder / "train",
                folder / "test",
                info.name,
                options.max_clients,
                options.seed,
                options.num_classes,
                options,
            )
    raise DataError(
        f"dataset {info.name}: data_dir={root} needs folders train and test of LEAF's json files"
    )


def _read(
    train_dir, test_dir, dataset, max_clients, seed, num_classes=None, options=None
) -> Source:
    if dataset not in FORMATS:
        raise DataError(f"dataset={dataset!r}: choose one of {', '.join(FORMATS)}")
    kind = FORMATS[dataset]
    if num_classes is not None and not 1 <= num_classes <= len(kind.class_names):
        raise DataError(
            f"num_classes={num_classes}: {dataset} has 1 to {len(kind.class_names)} classes"
        )
    parts = [_index(train_dir), _index(test_dir)]
    sizes: dict[str, int] = {}
    for part in parts:
        for user, entry in part.items():
            sizes[user] = sizes.get(user, 0) + entry.size
    users = [user for user, size in sizes.items() if size]
    notes = {"empty_users": len(sizes) - len(users)} if len(users) < len(sizes) else {}
    if not users:
        raise DataError(f"{train_dir} and {test_dir}: no user has any sample")
    if max_clients is not None:
        users = _choose(users, max_clients, seed, train_dir)
    limit = num_classes or len(kind.class_names)
    (train, train_rows), (test, test_rows) = (_load(part, users, kind, limit) for part in parts)
    chosen = [
        ClientIndices(user, *rows) for user, *rows in zip(users, train_rows, test_rows, strict=True)
    ]
    return make_source(kind, (train, test), chosen, options or SourceOptions(), num_classes, notes)


def _choose(users, number, seed, folder):
    if number < 1:
        raise DataError(f"max_clients={number}: must be a positive integer")
    if number > len(users):
        raise DataError(f"{number} clients wanted: {folder} has {len(users)} users with samples")
    # By name, so that the choice does not depend on how users are spread over files.
    by_name = sorted(users)
    rng = np.random.default_rng(seed)
    chosen = {by_name[i] for i in rng.choice(len(users), number, replace=False)}
    return [user for user in users if user in chosen]


class _Entry(NamedTuple):
    """Where a user's data stand: a file and the bytes in it, and how many samples they hold."""

    path: pathlib.Path
    start: int
    end: int
    size: int


# Bytes that a scan for the end of an object, or of a list, must stop at; strings are taken whole.
_TEXT = rb'"[^"\\]*(?:\\.[^"\\]*)*"'
_STOPS = {
    b"{": re.compile(_TEXT + rb"|\{|\}", re.DOTALL),
    b"[": re.compile(_TEXT + rb"|\[|\]", re.DOTALL),
}
_KEY = re.compile(rb"\s*(" + _TEXT + rb")\s*:\s*", re.DOTALL)
_SCALAR = re.compile(_TEXT + rb"|[^\s,\]}\"]+", re.DOTALL)
_NEXT = re.compile(rb"\s*([,}])")
_OPENING = re.compile(rb"\s*\{")
_CLOSING = re.compile(rb"\s*\}")


def _index(folder) -> dict[str, _Entry]:
    """Where the data of every user of a directory stand."""
    folder = pathlib.Path(folder)
    if not folder.is_dir():
        raise DataError(f"{folder} is not a directory of LEAF's json files")
    paths = sorted(folder.glob("*.json"))
    if not paths:
        raise DataError(f"{folder} holds no json file")
    entries: dict[str, _Entry] = {}
    for path in paths:
        for user, entry in _index_file(path).items():
            if user in entries:
                raise DataError(f"{path}: user {user!r} is also in {entries[user].path}")
            entries[user] = entry
    return entries


def _index_file(path) -> dict[str, _Entry]:
    places: dict[str, tuple[int, int]] = {}
    values = {}

    def note_user(user, start):
        if user in places:
            raise DataError(f"{path}: user {user!r} has data twice")
        places[user] = start, _end_of_value(text, start, path)
        return places[user][1]

    def note_key(key, start):
        if key == "user_data":
            values[key] = None
            return _walk(text, start, path, note_user)
        end = _end_of_value(text, start, path)
        if key in ("users", "num_samples"):
            values[key] = _parse(text, start, end, path)
        return end

    with _mapped(path) as text:
        end = _walk(text, 0, path, note_key)
        if text[end:].strip():
            raise DataError(f"{path}: not json: something follows the end at byte {end}")
    missing = [key for key in ("users", "num_samples", "user_data") if key not in values]
    if missing:
        raise DataError(f"{path}: key {missing[0]!r} is missing")
    users, sizes = values["users"], values["num_samples"]
    if not isinstance(users, list) or not isinstance(sizes, list) or len(users) != len(sizes):
        raise DataError(f"{path}: users and num_samples must be lists of the same length")
    users = list(map(str, users))
    if len(set(users)) < len(users):
        raise DataError(f"{path}: users holds a name twice")
    entries = {}
    for user, size in zip(users, sizes, strict=True):
        if user not in places:
            raise DataError(f"{path}: user {user!r} has no entry in user_data")
        start, end = places.pop(user)
        # Arrays are allocated by these sizes, so a sample cannot be less than a byte.
        if type(size) is not int or not 0 <= size <= end - start:
            raise DataError(f"{path}: user {user!r}: num_samples={size} does not fit the data")
        entries[user] = _Entry(path, start, end, size)
    if places:
        raise DataError(f"{path}: user {next(iter(places))!r} of user_data is not among users")
    return entries


@contextlib.contextmanager
def _mapped(path) -> Iterator[mmap.mmap]:
    with contextlib.ExitStack() as stack:
        try:
            file = stack.enter_context(open(path, "rb"))
            text = stack.enter_context(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
        except (OSError, ValueError) as error:  # an empty file cannot be mapped
            raise DataError(f"{path} cannot be read: {error}") from error
        yield text


def _walk(text, start, path, visit) -> int:
    """Goes through the object at `start` and returns its end.

    `visit(key, start of the value)` has to return the end of the value.
    """
    opening = _OPENING.match(text, start)
    if not opening:
        raise DataError(f"{path}: not json at byte {start}: an object should start here")
    closing = _CLOSING.match(text, opening.end())
    if closing:
        return closing.end()
    position = opening.end()
    while True:
        key = _KEY.match(text, position)
        if not key:
            raise DataError(f"{path}: not json at byte {position}: a key should stand here")
        end = visit(_parse(text, *key.span(1), path), key.end())
        following = _NEXT.match(text, end)
        if not following:
            raise DataError(f"{path}: not json at byte {end}: the file may be cut off")
        position = following.end()
        if following[1] == b"}":
            return position


def _end_of_value(text, start, path) -> int:
    opening = text[start : start + 1]
    stops = _STOPS.get(opening)
    if stops is None:
        scalar = _SCALAR.match(text, start)
        if not scalar:
            raise DataError(f"{path}: not json at byte {start}: a value should stand here")
        return scalar.end()
    depth = 0
    for stop in stops.finditer(text, start):
        token = text[stop.start() : stop.start() + 1]
        if token == b'"':
            continue
        depth += 1 if token == opening else -1
        if not depth:
            return stop.end()
    raise DataError(
        f"{path}: not json: what starts at byte {start} has no end, the file is cut off"
    )


def _parse(text, start, end, path, user=None):
    try:
        return json.loads(text[start:end])
    except (ValueError, RecursionError) as error:
        where = f"user {user!r}: " if user is not None else ""
        raise DataError(f"{path}: {where}not json: {error} after byte {start}") from error


def _load(entries, users, kind, limit) -> tuple[Examples, list[np.ndarray]]:
    """The chosen users' samples in one pair of arrays, and the rows of each user."""
    total = sum(entries[user].size for user in users if user in entries)
    x = np.empty((total, *kind.shape), np.uint8)
    y = np.empty(total, np.int32)
    rows = {user: np.empty(0, np.int64) for user in users}
    done = 0
    wanted = [user for user in users if user in entries]
    with contextlib.ExitStack() as stack:
        path = None
        # Users come in the order of the files, so each file is opened once.
        for user in sorted(wanted, key=lambda user: (entries[user].path, entries[user].start)):
            entry = entries[user]
            if entry.path != path:
                stack.close()
                path = entry.path
                text = stack.enter_context(_mapped(path))
            inputs, labels = _parse_user(text, entry, user, kind, limit)
            if inputs.dtype != x.dtype and x.dtype == np.uint8:
                x = as_floats(x)
            if inputs.dtype != x.dtype:
                inputs = as_floats(inputs)
            rows[user] = np.arange(done, done + entry.size)
            x[rows[user]], y[rows[user]] = inputs, labels
            done += entry.size
    return Examples(x, y), [rows[user] for user in users]


def _parse_user(text, entry, user, kind, limit):
    where = f"{entry.path}: user {user!r}"
    value = _parse(text, entry.start, entry.end, entry.path, user)
    if not isinstance(value, dict) or "x" not in value or "y" not in value:
        raise DataError(f"{where}: data need the keys 'x' and 'y'")
    x, y = value["x"], value["y"]
    if not isinstance(x, list) or not isinstance(y, list):
        raise DataError(f"{where}: x and y must be lists")
    if not len(x) == len(y) == entry.size:
        raise DataError(
            f"{where}: {len(x)} inputs and {len(y)} labels, num_samples says {entry.size}"
        )
    if not x:
        return np.empty((0, *kind.shape), np.uint8), np.empty(0, np.int32)
    try:
        inputs, labels = kind.parse(x, y)
    except (ValueError, TypeError, OverflowError) as error:
        raise DataError(f"{where}: {error}") from error
    if labels.min() < 0 or labels.max() >= limit:
        wrong = labels[(labels < 0) | (labels >= limit)][0]
        raise DataError(f"{where}: label {wrong} is not within 0 to {limit - 1}")
    return inputs, labels
