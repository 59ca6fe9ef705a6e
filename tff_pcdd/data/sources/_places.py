"""Checks of files before they are opened: what kind of file it is, how large, and where it lies.
Errors of libraries that open them, on one line.

A data directory may come from anyone. A pipe in it would be read for ever, and a link could lead to
any file of the user.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import pathlib
import re
import stat
from collections.abc import Sequence

from tff_pcdd.errors import DataError, nearest, question

# The entries of a directory among which the one that was meant is looked for.
_MOST_ENTRIES = 10_000

# What TensorFlow's errors say of its graph.
_NODES = re.compile(r"\{\{function_node [^}]*\}\}|\[Op:.*", re.DOTALL)


def check_file(
    path: str | os.PathLike,
    *,
    within: pathlib.Path | None = None,
    max_bytes: int | None = None,
    limit: str = "",
) -> None:
    """Checks that a path is a regular file, and no directory, pipe or device.

    Args:
        path: the path; links are followed.
        within: the directory out of which the path must not lead if it is a link; None for
            anywhere. Links among the folders above the file are not looked at.
        max_bytes: the largest permitted size; None for any.
        limit: what the size follows from, for the message: a setting, or a phrase.
    """
    shown = os.fsdecode(path)
    try:
        status = os.stat(path)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise DataError(f"{shown!r} cannot be read: {reason}") from error
    if not stat.S_ISREG(status.st_mode):
        raise DataError(f"{shown} is not a regular file")
    if within is not None and os.path.islink(path) and not is_within(path, within):
        raise DataError(f"{shown} is a link to a file outside of {within}")
    if max_bytes is not None and status.st_size > max_bytes:
        raise DataError(
            f"{shown} has {status.st_size} bytes, more than the {max_bytes} that {limit} allows"
        )


def check_data_file(path: pathlib.Path, name: str, suffixes: Sequence[str]) -> None:
    """Checks that the data_dir of a data set is a file whose name has one of these ends."""
    where = f"dataset {name}: data_dir={path}"
    if not path.exists():
        raise DataError(f"{where} does not exist{meant(path)}")
    if not path.is_file() or not path.name.lower().endswith(tuple(suffixes)):
        *most, last = suffixes
        kinds = f"{', '.join(most)} or {last}" if most else last
        raise DataError(f"{where} is not a {kinds} file")


def meant(path: pathlib.Path) -> str:
    """The end of an error about a path that does not exist: which ones were meant; empty for none.

    The part of the path that does not exist is looked for in the folder that should hold it.
    """
    missing = next((part for part in (path, *path.parents) if os.path.lexists(part.parent)), path)
    if os.path.lexists(missing):
        return ""
    rest = path.relative_to(missing)
    found: list[str] = []
    # What cannot be listed gives no hint.
    with contextlib.suppress(OSError, ValueError), os.scandir(missing.parent) as entries:
        names = sorted(entry.name for entry in itertools.islice(entries, _MOST_ENTRIES))
        others = [missing.parent / name / rest for name in nearest(missing.name, names)]
        found = [f"{other}" for other in others if other.exists()]
    return question(found)


def is_within(path: str | os.PathLike, folder: pathlib.Path) -> bool:
    """Whether a path, once links are followed, lies in a directory or is the directory itself."""
    real, root = os.path.realpath(path), os.path.realpath(folder)
    return real == root or real.startswith(root.rstrip(os.sep) + os.sep)


def reason_of(error: Exception) -> str:
    """What an error of a library says, on one short line; its type if it says nothing."""
    return " ".join(_NODES.sub("", str(error)).split())[:200] or type(error).__name__
