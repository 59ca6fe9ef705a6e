"""Checks of output directories and their disks, and locks that give a directory a single writer."""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import os
import shutil
import stat
import tempfile
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

from tff_pcdd import files
from tff_pcdd.errors import LockedError, SettingError, UnwritableError
from tff_pcdd.text import size

_LOCK = ".lock"


def check_output(
    directory: Path, holds: str, known: Collection[str], setting: str = "output_dir"
) -> bool:
    """Checks that results can be written to a directory, without writing anything.

    Neither it nor its parents need to exist.

    Args:
        holds: what the directory may already contain, such as "run", for the error.
        known: the names of entries that belong to such results.
        setting: the setting that names the directory, for the error.

    Returns:
        Whether the directory already contains such results.

    Raises:
        SettingError: the directory is a file, is not writable, or contains something else.
    """
    value = str(directory)
    nearest = _nearest(directory)
    if not nearest.is_dir():
        raise SettingError(setting, value, f"{nearest} is a file; choose a directory")
    if not os.access(nearest, os.W_OK | os.X_OK):
        raise SettingError(setting, value, f"{nearest} is not writable; choose another directory")
    if nearest != directory:
        return False
    # A process that was killed early may have left only a lock and temporary files.
    entries = [
        path for path in directory.iterdir() if not is_lock(path) and not path.match(".*.tmp")
    ]
    if entries and not any(path.name in known for path in entries):
        reason = f"is not empty and holds no {holds}; choose another directory"
        raise SettingError(setting, value, reason)
    return bool(entries)


def refuse_links(
    directory: Path, names: Iterable[str], setting: str = "output_dir", *, inside: bool = True
) -> None:
    """Checks that none of a directory's entries is a link or, if it is a directory, contains one.

    What is written to it would be written where the link points, which who made the directory has
    chosen. Neither the directory nor the entries need to exist.

    Args:
        setting: the setting that names the directory, for the error.
        inside: whether to look into directories.

    Raises:
        SettingError: there is a link.
    """
    for path in (directory / name for name in names):
        # Not of what no path can be, such as a text with NUL.
        walk = os.walk(path) if inside and os.path.isdir(path) and not path.is_symlink() else ()
        below = (
            os.path.join(folder, name)
            for folder, *names in walk
            for name in itertools.chain(*names)
        )
        for found in itertools.chain([os.fspath(path)], below):
            if os.path.islink(found):
                shown = os.path.relpath(found, directory)
                reason = f"{shown} is a link, and results would be written where it points"
                raise SettingError(setting, str(directory), f"{reason}; remove it")


def _nearest(directory: Path) -> Path:
    """The directory, or the first of its parents that exists."""
    return next(path for path in (directory, *directory.parents) if os.path.exists(path))


@contextlib.contextmanager
def locked(
    directory: Path, setting: str = "output_dir", *, lock_file: bool = True
) -> Iterator[None]:
    """Locks a directory for writing, and creates it if it does not exist.

    The operating system releases the lock when the process ends, even if it is killed.

    Args:
        setting: the setting that names the directory, for the error.
        lock_file: lock the file `.lock`, which stays in the directory and does not mean that it is
            locked; else, the directory itself, which some file servers cannot lock.

    Raises:
        LockedError: another process has locked the directory.
        SettingError: something else than a file has the lock's name, such as a link.
        WriteError: the directory or its lock cannot be created.
    """
    files.make_directory(directory)
    path, flags = directory, os.O_RDONLY | os.O_DIRECTORY
    if lock_file:
        path, flags = directory / _LOCK, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK
        if os.path.lexists(path) and not stat.S_ISREG(os.lstat(path).st_mode):
            raise SettingError(setting, str(directory), f"{_LOCK} is not a file; remove it")
    with files.writing(path):
        descriptor = os.open(path, flags, 0o666)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise LockedError(
                setting,
                str(directory),
                "another process is writing to this directory; wait for it to finish or choose "
                "another directory",
            ) from None
        except OSError:
            # The file system does not support locks; continue without one.
            pass
        yield
    finally:
        os.close(descriptor)


def is_lock(path: Path) -> bool:
    """Whether a path is the lock of its directory."""
    return path.name == _LOCK


def refuse_locked(directory: Path) -> None:
    """Raises a LockedError if another process has locked a directory; writes nothing."""
    if os.path.lexists(directory / _LOCK):
        with locked(directory):
            pass


def check_writable(directory: Path, setting: str = "output_dir") -> None:
    """Checks that files can be created in a directory by creating one without a name.

    Permissions alone do not tell of a full disk, of a quota, or what a file server allows.

    Args:
        directory: the directory; if it does not exist, the first of its parents that exists.
        setting: the setting that names the directory, for the error.

    Raises:
        UnwritableError: no file can be created.
    """
    nearest = _nearest(directory)
    try:
        with tempfile.TemporaryFile(dir=nearest) as file:
            file.write(bytes(4096))
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise UnwritableError(
            setting,
            str(directory),
            f"cannot write to {nearest}: {error.strerror}; change that, or choose another "
            "directory",
        ) from None


def check_space(directory: Path, needed: int, what: str) -> None:
    """Checks that there are so many bytes of free space for what will be written to a directory.

    Args:
        what: what needs the space, for the error.

    Raises:
        SettingError: there is less space.
    """
    free = shutil.disk_usage(_nearest(directory)).free
    if needed > free:
        raise SettingError(
            "output_dir",
            str(directory),
            f"{what} need up to {size(needed)}, and {size(free)} are free; make space, or choose "
            "another directory",
        )
