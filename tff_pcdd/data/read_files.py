"""The files that a data set was read from, and how they have changed since.

Names and sizes tell without reading a file. Contents count where only the time of change differs,
so copied files are the same.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from tff_pcdd import files, text
from tff_pcdd.data.sources import DataSource
from tff_pcdd.errors import DataError, printable

# The most files that are recorded one by one; of more, the folders are, down to some level.
_MOST = 1000
_LEVELS = (None, 2, 1, 0)

# The most bytes whose contents are hashed; of larger data and of more files, sizes alone tell.
_MOST_BYTES = 1_000_000_000

# How many names a message has of each kind of change.
_SHOWN = 3


class ReadFile(NamedTuple):
    """A file as it was when it was listed: its size in bytes, and its time of change in ns.

    `is_named` if another file names it, as a table names images; earlier versions listed none.
    """

    path: str
    size: int
    time: int
    is_named: bool = False


def listing(source: DataSource) -> dict[str, ReadFile]:
    """The files of a data set, by their names below `data_dir` or, if it is a file, its folder.

    Nothing is read but the files that name others. It is empty if the files are not known.
    """
    root = os.fspath(getattr(source, "path", ""))
    root = root if os.path.isdir(root) else os.path.dirname(root)
    found: dict[str, ReadFile] = {}
    try:
        for each in source.read_files():
            found |= _noticed(str(each), root)
    except (OSError, ValueError, DataError):
        return {}
    with contextlib.suppress(OSError, ValueError, DataError):
        for each in source.listed_files():
            with contextlib.suppress(FileNotFoundError):
                found |= _noticed(str(each), root, is_named=True)
    return found


def _noticed(path: str, root: str, *, is_named: bool = False) -> dict[str, ReadFile]:
    status = os.stat(path)
    name = path.removeprefix(root).lstrip(os.sep) or os.path.basename(path)
    return {name: ReadFile(path, status.st_size, status.st_mtime_ns, is_named)}


def record(found: Mapping[str, ReadFile]) -> str:
    """What `changes` compares with: sizes, times and contents, as JSON; empty without any file."""
    if not found:
        return ""
    level = next(
        level for level in _LEVELS if len({_group(name, level) for name in found}) <= _MOST
    )
    size = sum(file.size for file in found.values())
    reads = len(found) <= _MOST and size <= _MOST_BYTES
    entries = {
        group: [_noted(own, "size"), _noted(own, "time"), _contents(own) if reads else ""]
        for group, own in _grouped(found, level).items()
    }
    named = any(file.is_named for file in found.values())
    return json.dumps({"level": level, "files": entries, **({"named": True} if named else {})})


def changes(recorded: str, found: Mapping[str, ReadFile]) -> str:
    """What has changed in the files of a data set; empty if nothing has, or it is not known.

    Args:
        recorded: what `record` has returned, or a text of unknown origin.
        found: the files now, as from `listing`.
    """
    level, before, named = _parsed(recorded)
    if not before or not found:
        return ""
    if not named:
        found = {name: file for name, file in found.items() if not file.is_named}
    now = _grouped(found, level)
    kinds = {
        "new": now.keys() - before.keys(),
        "missing": before.keys() - now.keys(),
        "changed": {
            name for name in now.keys() & before.keys() if _differs(before[name], now[name])
        },
    }
    return "; ".join(
        f"{kind}: {text.listed([printable(name)[-80:] for name in sorted(names)], _SHOWN)}"
        for kind, names in kinds.items()
        if names
    )


def _parsed(recorded: str) -> tuple[int | None, dict[str, list[str]], bool]:
    """The level and the entries of a record; without entries if it is none.

    Third, whether it has files that others name.
    """
    try:
        values: Any = json.loads(recorded or "{}")
        level, entries = values["level"], values["files"]
        known = {str(name): [str(part) for part in parts] for name, parts in entries.items()}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None, {}, False
    if level not in _LEVELS or any(len(parts) != 3 for parts in known.values()):
        return None, {}, False
    return level, known, bool(values.get("named"))


def _differs(before: list[str], now: Mapping[str, ReadFile]) -> bool:
    sizes, times, contents = before
    if sizes != _noted(now, "size"):
        return True
    return bool(contents) and times != _noted(now, "time") and contents != _contents(now)


def _group(name: str, level: int | None) -> str:
    """A file, or the folder at a level that it is in."""
    if level is None:
        return name
    return "/".join([*os.path.dirname(name).split(os.sep)[:level], ""]) or "./"


def _grouped(found: Mapping[str, ReadFile], level: int | None) -> dict[str, dict[str, ReadFile]]:
    groups: dict[str, dict[str, ReadFile]] = {}
    for name in sorted(found):
        groups.setdefault(_group(name, level), {})[name] = found[name]
    return groups


def _noted(found: Mapping[str, ReadFile], field: str) -> str:
    return _joined((name, getattr(file, field)) for name, file in found.items())


def _contents(found: Mapping[str, ReadFile]) -> str:
    """Hash of contents; empty if a file cannot be read, or is not the one any more that it was."""
    try:
        hashes = [(name, _hash(file)) for name, file in found.items()]
    except OSError:
        return ""
    return _joined(hashes) if all(digest for _, digest in hashes) else ""


# The runs of a study mostly have the same files.
@functools.lru_cache(maxsize=10_000)
def _hash(file: ReadFile) -> str:
    digest, status = files.sha256(file.path), os.stat(file.path)
    return digest if (status.st_size, status.st_mtime_ns) == (file.size, file.time) else ""


def _joined(values: Iterable[tuple[str, Any]]) -> str:
    """The value of one file, or a hash of those of several, with their names."""
    pairs = [*values]
    if len(pairs) == 1:
        return str(pairs[0][1])
    return hashlib.sha256(json.dumps(pairs).encode()).hexdigest()
