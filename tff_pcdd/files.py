"""Atomic writes of result files, and locks that give a directory a single writer."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tff_pcdd.errors import SettingError

_LOCK = ".lock"


def write_atomically(path: Path, write: Callable[[Any], None]) -> None:
    """Calls `write(file)` with a temporary binary file, then renames that file to `path`."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with open(temporary, "wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Writes a text file atomically, in UTF-8."""
    write_atomically(path, lambda file: file.write(text.encode()))


def remove_leftovers(directory: Path) -> None:
    """Removes the temporary files of killed processes from a directory and its subdirectories."""
    for path in directory.rglob(".*.tmp"):
        path.unlink(missing_ok=True)


def check_output(
    directory: Path, holds: str, known: Callable[[Path], bool], setting: str = "output_dir"
) -> bool:
    """Checks that results can be written to a directory, without writing anything.

    Args:
        directory: the directory; neither it nor its parents need to exist.
        holds: what the directory may already contain, such as "run", for the error.
        known: whether an entry of the directory belongs to such results.
        setting: the setting that names the directory, for the error.

    Returns:
        Whether the directory already contains such results.

    Raises:
        SettingError: the directory is a file, is not writable, or contains something else.
    """
    value = str(directory)
    nearest = next(path for path in (directory, *directory.parents) if os.path.exists(path))
    if not nearest.is_dir():
        raise SettingError(setting, value, f"{nearest} is a file; choose a directory")
    if not os.access(nearest, os.W_OK | os.X_OK):
        raise SettingError(setting, value, f"{nearest} is not writable; choose another directory")
    if nearest != directory:
        return False
    # A process that was killed early may have left only a lock and temporary files.
    entries = [
        path for path in directory.iterdir() if path.name != _LOCK and not path.match(".*.tmp")
    ]
    if entries and not any(known(path) for path in entries):
        reason = f"is not empty and holds no {holds}; choose another directory"
        raise SettingError(setting, value, reason)
    return bool(entries)


@contextlib.contextmanager
def locked(directory: Path, setting: str = "output_dir") -> Iterator[None]:
    """Locks a directory for writing, and creates it if it does not exist.

    The operating system releases the lock when the process ends, even if it is killed. The file
    `.lock` stays in the directory and does not mean that the directory is locked.

    Args:
        directory: the directory.
        setting: the setting that names the directory, for the error.

    Raises:
        SettingError: another process has locked the directory.
    """
    directory.mkdir(parents=True, exist_ok=True)
    with open(directory / _LOCK, "a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise SettingError(
                setting,
                str(directory),
                "another process is writing to this directory; wait for it to finish or choose "
                "another directory",
            ) from None
        except OSError:
            # The file system does not support locks; continue without one.
            pass
        yield


def refuse_locked(directory: Path, setting: str = "output_dir") -> None:
    """Checks that no other process has locked a directory, without writing anything.

    Args:
        directory: the directory; it need not exist.
        setting: the setting that names the directory, for the error.

    Raises:
        SettingError: another process has locked the directory.
    """
    if (directory / _LOCK).exists():
        with locked(directory, setting):
            pass
