"""Nested structures of arrays on disk."""

from __future__ import annotations

import hashlib
import io
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from tff_pcdd import files
from tff_pcdd.errors import DamagedFileError, DataError
from tff_pcdd.training import manifests


class _Checksummed:
    """Writes to a file and computes the checksum of what is written.

    It cannot seek, so no byte is written twice. It is not an `io` class, because those close
    themselves before a half-written archive that is garbage-collected calls them once more.
    """

    def __init__(self, file: Any):
        self._file = file
        self.checksum = hashlib.sha256()

    def write(self, data: Any) -> int:
        self.checksum.update(data)
        return self._file.write(data)

    def flush(self) -> None:
        self._file.flush()

    def read(self, size: int = -1) -> bytes:
        """By this method, NumPy tells files from paths."""
        raise io.UnsupportedOperation("read")


def save_tree(path: Path, tree: Any, *, sync: bool = True) -> str:
    """Saves the leaves of a nested structure, in `tf.nest` order.

    Args:
        path: the file. Its name is on the disk after `files.sync_directory`.
        tree: the structure.
        sync: whether the contents are on the disk then; otherwise after `files.sync_files`.

    Returns:
        The checksum of the file.
    """
    leaves = [np.asarray(leaf) for leaf in tf.nest.flatten(tree)]
    checksum = ""

    def write(file: Any) -> None:
        nonlocal checksum
        output = _Checksummed(file)
        np.savez(output, *leaves)
        checksum = output.checksum.hexdigest()

    files.write_atomically(path, write, sync_contents=sync, sync_name=False)
    return checksum


def load_tree(path: Path, template: Any, checksum: str | None = None) -> Any:
    """Loads what `save_tree` saved, in the structure of `template`.

    Args:
        path: the file.
        template: a structure whose leaves have the same shapes and types.
        checksum: what `save_tree` returned; without it, only obvious damage is noticed.

    Raises:
        DamagedFileError: the file is missing or damaged.
        DataError: the shapes or types differ from those of the template, or the file cannot be
            read.
    """
    if checksum is not None:
        manifests.check_file(path, checksum)
    expected = [np.asarray(leaf) for leaf in tf.nest.flatten(template)]
    try:
        with np.load(path, allow_pickle=False) as file:
            leaves = [file[f"arr_{index}"] for index in range(len(file.files))]
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
        raise DamagedFileError(f"{path} is damaged ({error})") from error
    if [(a.shape, a.dtype) for a in leaves] != [(a.shape, a.dtype) for a in expected]:
        raise DataError(f"{path} was written for another model or method")
    return tf.nest.pack_sequence_as(template, leaves)


def to_numpy(tree: Any) -> Any:
    """The same structure with NumPy arrays as leaves."""
    return tf.nest.map_structure(np.asarray, tree)
