"""Finds the data of users in LEAF's JSON files without parsing whole files.

Parsing a whole file at once would take twenty times the memory of the arrays. Instead, the file is
mapped into memory and scanned for the byte range of each user's data, so that users can be parsed
one at a time.
"""

from __future__ import annotations

import contextlib
import dataclasses
import mmap
import os
import pathlib
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from tff_pcdd.data.sources._json import STRING, JsonSource, Limits, end_of_brackets, parse
from tff_pcdd.data.sources._places import check_file, meant
from tff_pcdd.errors import DataError


class Entry(NamedTuple):
    """Where the data of a user are: the file, and its bytes from `start` to before `end`.

    Attributes:
        size: number of samples, as the file states it.
    """

    path: pathlib.Path
    start: int
    end: int
    size: int


@dataclasses.dataclass(frozen=True)
class LeafDirectory(JsonSource):
    """Mixin for data sets in the directories that LEAF's scripts make."""

    def folder(self) -> pathlib.Path:
        """The folder that holds the folders train and test.

        Raises:
            DataError: if there is none.
        """
        root, name = self.path, self.name
        for folder in (root, root / "data", root / name, root / name / "data"):
            if (folder / "train").is_dir() and (folder / "test").is_dir():
                return folder
        raise DataError(
            f"dataset {name}: data_dir={root} needs folders train and test of LEAF's JSON files"
            f"{meant(root)}"
        )

    def check(self) -> None:
        self.folder()

    def read_files(self) -> Iterable[pathlib.Path]:
        parts = (self.folder() / part for part in ("train", "test"))
        return [path for part in parts for path in sorted(part.glob("*.json"))]


def index(folder: str | os.PathLike, limits: Limits) -> dict[str, Entry]:
    """Finds the data of every user in a directory of JSON files, in the order of the files.

    The limits are those of the data of a user, and of the lists of users.
    """
    folder = pathlib.Path(folder)
    if not folder.is_dir():
        raise DataError(f"{folder} is not a directory of LEAF's JSON files")
    paths = sorted(folder.glob("*.json"))
    if not paths:
        raise DataError(f"{folder} holds no JSON file")
    return index_files(paths, limits)


def index_files(paths: Iterable[pathlib.Path], limits: Limits) -> dict[str, Entry]:
    """Like `index`, in given files."""
    entries: dict[str, Entry] = {}
    for path in paths:
        for user, entry in _index_file(path, limits).items():
            if user in entries:
                raise DataError(f"{path}: user {user!r:.80} is also in {entries[user].path}")
            entries[user] = entry
    return entries


@contextlib.contextmanager
def mapped(path: pathlib.Path) -> Iterator[mmap.mmap]:
    """Maps a file into memory, read-only."""
    check_file(path)
    with contextlib.ExitStack() as stack:
        try:
            file = stack.enter_context(open(path, "rb"))
            text = stack.enter_context(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
        except (OSError, ValueError) as error:  # an empty file cannot be mapped
            raise DataError(f"{path} cannot be read: {error}") from error
        yield text


_KEY = re.compile(rb"\s*(" + STRING + rb")\s*:\s*", re.DOTALL)
_SCALAR = re.compile(STRING + rb"|[^\s,\]}\"]+", re.DOTALL)
_NEXT = re.compile(rb"\s*([,}])")
_OPENING = re.compile(rb"\s*\{")
_CLOSING = re.compile(rb"\s*\}")


def _index_file(path: pathlib.Path, limits: Limits) -> dict[str, Entry]:
    places: dict[str, tuple[int, int]] = {}
    values: dict[str, Any] = {}

    def note_user(user: str, start: int) -> int:
        if user in places:
            raise DataError(f"{path}: user {user!r:.80} has data twice")
        places[user] = start, _end_of_value(text, start, path, limits)
        return places[user][1]

    def note_key(key: str, start: int) -> int:
        if key in values:
            raise DataError(f"{path}: key {key!r} occurs twice")
        if key == "user_data":
            values[key] = None
            return _walk(text, start, path, limits, note_user)
        end = _end_of_value(text, start, path, limits)
        if key in ("users", "num_samples"):
            values[key] = parse(text, start, end, path, limits)
        return end

    with mapped(path) as text:
        end = _walk(text, 0, path, limits, note_key)
        if text[end:].strip():
            raise DataError(f"{path}: not JSON: there is text after the end at byte {end}")
    return _entries(path, places, values)


def _entries(
    path: pathlib.Path, places: dict[str, tuple[int, int]], values: dict[str, Any]
) -> dict[str, Entry]:
    """The entries of a file, by user, if the lists of users and sizes in `values` fit the data.

    `places` says where the data of each user are; those that are listed are taken out.
    """
    missing = [key for key in ("users", "num_samples", "user_data") if key not in values]
    if missing:
        raise DataError(f"{path}: key {missing[0]!r} is missing")
    users, sizes = values["users"], values["num_samples"]
    if not isinstance(users, list) or not isinstance(sizes, list) or len(users) != len(sizes):
        raise DataError(f"{path}: users and num_samples must be lists of the same length")
    users = list(map(str, users))
    if len(set(users)) < len(users):
        raise DataError(f"{path}: users lists a name twice")
    entries = {}
    for user, size in zip(users, sizes, strict=True):
        if user not in places:
            raise DataError(f"{path}: user {user!r:.80} has no entry in user_data")
        start, end = places.pop(user)
        # Arrays are allocated with these sizes, so wrong ones are refused: a sample takes at least
        # one byte of JSON.
        if type(size) is not int or not 0 <= size <= end - start:
            raise DataError(
                f"{path}: user {user!r:.80}: num_samples={size!s:.40} does not fit the data"
            )
        entries[user] = Entry(path, start, end, size)
    if places:
        raise DataError(f"{path}: user {next(iter(places))!r:.80} of user_data is not among users")
    return entries


def _walk(
    text: mmap.mmap,
    start: int,
    path: pathlib.Path,
    limits: Limits,
    visit: Callable[[str, int], int],
) -> int:
    """Walks through the object at `start` and returns its end.

    `visit(key, start of the value)` has to return the end of the value.
    """
    opening = _OPENING.match(text, start)
    if not opening:
        raise DataError(f"{path}: not JSON at byte {start}: an object should start here")
    closing = _CLOSING.match(text, opening.end())
    if closing:
        return closing.end()
    position = opening.end()
    while True:
        key = _KEY.match(text, position)
        if not key:
            raise DataError(f"{path}: not JSON at byte {position}: there should be a key here")
        end = visit(parse(text, *key.span(1), path, limits), key.end())
        following = _NEXT.match(text, end)
        if not following:
            raise DataError(f"{path}: not JSON at byte {end}: the file may be truncated")
        position = following.end()
        if following[1] == b"}":
            return position


def _end_of_value(text: mmap.mmap, start: int, path: pathlib.Path, limits: Limits) -> int:
    if text[start : start + 1] in (b"{", b"["):
        return end_of_brackets(text, start, path, limits)
    scalar = _SCALAR.match(text, start)
    if not scalar:
        raise DataError(f"{path}: not JSON at byte {start}: there should be a value here")
    return scalar.end()
