"""Checks of a disk before hours of work: can files be created, and is there enough space."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

from tff_pcdd import files
from tff_pcdd.errors import SettingError


def check_writable(directory: Path, setting: str = "output_dir") -> None:
    """Checks that files can be created in a directory by creating one without a name.

    Permissions alone do not tell of a full disk, of a quota, or what a file server allows.

    Args:
        directory: the directory; if it does not exist, the first of its parents that exists.
        setting: the setting that names the directory, for the error.

    Raises:
        SettingError: no file can be created.
    """
    nearest = files.nearest_directory(directory)
    try:
        with tempfile.TemporaryFile(dir=nearest) as file:
            file.write(bytes(4096))
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise SettingError(
            setting,
            str(directory),
            f"cannot write to {nearest}: {error.strerror}; change that, or choose another "
            "directory",
        ) from None


def check_space(directory: Path, needed: int, what: str) -> None:
    """Checks that there is enough free space for what will be written to a directory.

    Args:
        directory: the directory; if it does not exist, the first of its parents that exists.
        needed: number of bytes.
        what: what needs the space, for the error.

    Raises:
        SettingError: there is less space.
    """
    free = shutil.disk_usage(files.nearest_directory(directory)).free
    if needed > free:
        raise SettingError(
            "output_dir",
            str(directory),
            f"{what} need up to {_size(needed)}, and {_size(free)} are free; make space, or choose "
            "another directory",
        )


def _size(number: int) -> str:
    """A number of bytes in the unit that suits it."""
    units = ("B", "kB", "MB", "GB")
    power = min(max(len(str(number)) - 1, 0) // 3, len(units) - 1)
    return f"{number / 1000**power:.3g} {units[power]}" if power < 3 else f"{number / 1e9:,.1f} GB"
