"""Files written so that a reader never sees half of one, in directories with one writer."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tff_pcdd.options import OptionError

_LOCK = ".lock"


def write_atomically(path: Path, write: Callable[[Any], None]) -> None:
    """Calls `write(file)` on a temporary binary file beside `path`, then renames it to `path`."""
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
    """Writes a text file at once."""
    write_atomically(path, lambda file: file.write(text.encode()))


def remove_leftovers(directory: Path) -> None:
    """Removes temporary files that a kill left behind in a directory of results."""
    for path in directory.rglob(".*.tmp"):
        path.unlink(missing_ok=True)


def check_output(
    directory: Path, holds: str, known: Callable[[Path], bool], flag: str = "output_dir"
) -> bool:
    """Refuses a directory to which results cannot go. Nothing is written.

    Args:
        directory: it, or its parents, need not exist.
        holds: what it may contain already, for the message.
        known: whether an entry of the directory shows that it contains just that.
        flag: the setting that names it, for the message.

    Returns:
        Whether there are results in it already.

    Raises:
        OptionError: it is a file, cannot be written to, or contains something else.
    """
    flag = f"--{flag}={directory}"
    nearest = next(path for path in (directory, *directory.parents) if os.path.exists(path))
    if not nearest.is_dir():
        raise OptionError(f"{flag}: {nearest} is a file, name a directory")
    if not os.access(nearest, os.W_OK | os.X_OK):
        raise OptionError(f"{flag}: {nearest} cannot be written to, name another directory")
    if nearest != directory:
        return False
    # A run killed within its first moments may have left no more than these.
    entries = [
        path for path in directory.iterdir() if path.name != _LOCK and not path.match(".*.tmp")
    ]
    if entries and not any(known(path) for path in entries):
        raise OptionError(f"{flag}: is not empty and holds no {holds}, name another directory")
    return bool(entries)


@contextlib.contextmanager
def locked(directory: Path) -> Iterator[None]:
    """Makes this process the only one that writes results to a directory, which is made if need be.

    The lock is the operating system's: it ends with the process, however that ends, so the file
    `.lock` that stays behind means nothing.

    Raises:
        OptionError: another process has it.
    """
    directory.mkdir(parents=True, exist_ok=True)
    with open(directory / _LOCK, "a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise OptionError(
                f"--output_dir={directory}: another process is writing its results there, wait for "
                "it or name another directory"
            ) from None
        except OSError:
            # A file system without locks; better no protection than no results.
            pass
        yield


def refuse_locked(directory: Path) -> None:
    """Refuses a directory that another process writes to; nothing is made there.

    Raises:
        OptionError: as `locked`.
    """
    if (directory / _LOCK).exists():
        with locked(directory):
            pass
