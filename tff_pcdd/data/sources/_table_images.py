"""The images of a table's rows: files that a pattern names, or images in the table itself."""

from __future__ import annotations

import atexit
import functools
import glob
import hashlib
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tff_pcdd.data.sources._columns import Columns
from tff_pcdd.data.sources._image_lists import describe_missing
from tff_pcdd.data.sources._names import as_texts
from tff_pcdd.errors import DataError, SettingError

# The name of a column in a pattern.
_COLUMN = re.compile(r"\{([^{}]*)\}")


def values_of_images(
    columns: Columns, column: str, pattern: str | None
) -> dict[str, Sequence[Any]]:
    """The values that say which image a row has, by what they are, for messages.

    Args:
        columns: the table.
        column: the column of paths or images; it may be missing.
        pattern: see `_find_images`; None if the column says which images there are.
    """
    if pattern is not None:
        names = _COLUMN.findall(pattern)
        return {f"the image's {name}": columns.values(name, "path_pattern") for name in names}
    if column not in columns:
        return {}
    cells = columns.values(column, "path_column")
    return {"the image": _without_contents(cells) if _holds_images(cells) else cells}


def stored_images(columns: Columns, column: str, pattern: str | None) -> StoredImages | None:
    """The images that the table holds itself; None if it names files."""
    if pattern is not None or column not in columns:
        return None
    cells = columns.values(column, "path_column")
    return StoredImages(cells, columns) if _holds_images(cells) else None


def listed_paths(
    columns: Columns, column: str, pattern: str | None, folder: pathlib.Path
) -> list[str]:
    """The image file of each row, relative to a folder; it may not exist."""
    if pattern is not None:
        return _find_images(pattern, columns, folder)
    if column not in columns:
        stored = [name for name in columns.names if _holds_images(columns.values(name, ""))]
        raise DataError(
            f"{columns.place}: there is no column {column!r} of image files; name it by "
            f"path_column{f', such as {stored[0]}' if stored else ''}, or columns of numbers by "
            "feature_columns, or use path_pattern"
        )
    texts = as_texts(columns.values(column, "path_column"), "path", columns.place, columns.rows)
    # As Windows writes paths.
    texts = [
        text if "\\" not in text or os.path.exists(folder / text) else text.replace("\\", "/")
        for text in texts
    ]
    if not any(map(os.path.isfile, (folder / text for text in texts[:1]))) and not any(
        pathlib.PurePath(text).suffix for text in texts
    ):
        raise DataError(
            f"{columns.place}, row {columns.rows[0]}: {texts[0]!r:.80} in column {column!r} is not "
            f"the name of a file; path_pattern='{{{column}}}.jpg' adds what it lacks"
        )
    return texts


def _find_images(pattern: str, columns: Columns, folder: pathlib.Path) -> list[str]:
    """The image file of each row, in a folder or in one below it, as a path relative to the folder.

    The pattern is the path of a file, with names of columns in braces; folders may have wildcards.
    A file of exactly this path is preferred to those in folders.
    """
    names = _COLUMN.findall(pattern)
    if not names:
        reason = "names no column in braces, such as {image_id}.jpg"
        raise SettingError("path_pattern", pattern, reason)
    if glob.has_magic(os.path.basename(pattern)):
        raise SettingError("path_pattern", pattern, "may have wildcards in folders only")
    values = {
        name: as_texts(columns.values(name, "path_pattern"), "path", columns.place, columns.rows)
        for name in names
    }
    files: dict[str, list[str]] = {}
    for place, folders, found in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in found:
            files.setdefault(name, []).append(os.path.relpath(os.path.join(place, name), folder))
    paths, missing = [], []
    for index, row in enumerate(columns.rows):
        cells = {name: texts[index] for name, texts in values.items()}
        plain = _filled(pattern, cells)
        wanted = _filled(pattern, {name: glob.escape(text) for name, text in cells.items()})
        there = files.get(os.path.basename(plain), [])
        matching = [path for path in there if pathlib.PurePath(path).match(wanted)]
        if plain in matching:
            matching = [plain]
        if len(matching) > 1:
            raise DataError(
                f"{columns.place}, row {row}: there are {matching[0]} and {matching[1]}; let "
                "path_pattern name the folder"
            )
        paths += matching
        if not matching:
            missing.append(plain)
    if missing:
        place = f"{folder} and the folders in it"
        raise DataError(describe_missing(pathlib.Path(columns.place), missing, place))
    return paths


def _filled(pattern: str, cells: Mapping[str, str]) -> str:
    return _COLUMN.sub(lambda match: cells[match[1]], pattern)


def _holds_images(cells: Sequence[Any]) -> bool:
    """Whether cells are images themselves: bytes, or bytes and path as Hugging Face writes them."""
    first = next((cell for cell in cells if cell is not None), None)
    return isinstance(first, bytes) or _is_pair(first)


def _without_contents(cells: Sequence[Any]) -> list[str | None]:
    """Such cells as short texts; None for those without an image and the name of its file."""
    there = [(cell["bytes"] or cell.get("path")) if _is_pair(cell) else cell for cell in cells]
    return ["image" if cell else None for cell in there]


def _is_pair(cell: Any) -> bool:
    return isinstance(cell, dict) and "bytes" in cell


class StoredImages:
    """Images that the cells of a table hold, in temporary files.

    They are removed when the process has ended, however it ends, or earlier if all pixels are in
    memory. A process stores the same images only once.
    """

    def __init__(self, cells: Sequence[Any], columns: Columns):
        contents = [cell["bytes"] if _is_pair(cell) else cell for cell in cells]
        digest = hashlib.sha256()
        for row, content in zip(columns.rows, contents, strict=True):
            if not isinstance(content, bytes):
                raise DataError(f"{columns.place}, row {row}: the table does not hold the image")
            digest.update(hashlib.sha256(content).digest())
        folder = os.path.join(_temporary_folder(), digest.hexdigest())
        # A digest of the data includes the names of the files.
        self._paths = [os.path.join(folder, f"{index:09d}") for index in range(len(contents))]
        self._folder = None if folder in _stored else folder
        if self._folder is not None:
            os.makedirs(folder, exist_ok=True)
            for path, content in zip(self._paths, contents, strict=True):
                pathlib.Path(path).write_bytes(content)
            _stored.add(folder)

    def paths(self) -> np.ndarray:
        """The files, as bytes, [n]."""
        return np.array(list(map(os.fsencode, self._paths)))

    def remove(self) -> None:
        """Removes the files, unless they had been stored before."""
        if self._folder is not None:
            _stored.remove(self._folder)
            shutil.rmtree(self._folder)


# The folders whose files are complete.
_stored: set[str] = set()


@functools.cache
def _temporary_folder() -> str:
    """A folder that is removed when the process has ended."""
    folder = tempfile.mkdtemp(prefix="tff_pcdd_images_")
    # A process that a signal ends removes nothing, but its end of a pipe is closed in any case.
    command = ["/bin/sh", "-c", 'trap "" HUP INT TERM; read _; rm -rf -- "$0"', folder]
    nowhere = subprocess.DEVNULL
    remover = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=nowhere, stderr=nowhere, start_new_session=True
    )
    # Closes the pipe, and waits.
    atexit.register(remover.communicate)
    return folder
