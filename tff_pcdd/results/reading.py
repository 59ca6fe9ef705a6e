"""Files of a directory of unknown origin, read with limits; nothing in them is executed.

A file that is missing or damaged is described in one line, and the report goes on without it.
"""

from __future__ import annotations

import contextlib
import csv
import io
import zipfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from tff_pcdd import files, tables
from tff_pcdd.errors import DamagedFileError, DataError, SettingError, shown
from tff_pcdd.experiment.history import History
from tff_pcdd.training.file_names import METRICS
from tff_pcdd.training.recovery import read_history

# The most bytes of a text file, and of all arrays of an archive when they are unpacked.
_MAX_ARRAYS = 256_000_000

T = TypeVar("T")


class Directory:
    """The files of a run or a comparison.

    What reads a file raises a FileNotFoundError if there is none, and a DamagedFileError if it is
    damaged, too large, no regular file, or a link that leads out of the directory.

    Attributes:
        path: the directory.
        compared: whether measurements are compared with their copies in checkpoints, which takes
            as long as reading the checkpoints.
        problems: for each file that could not be read, one line that says why.
    """

    def __init__(self, path: Path, compared: bool = True):
        self.path = path
        self.compared = compared
        self.problems: dict[str, str] = {}

    def attempt(self, name: str, read: Callable[..., T], *arguments: Any) -> T | None:
        """What `read(*arguments)` returns; None if it raises an error about the file `name`."""
        try:
            return read(*arguments)
        except FileNotFoundError:
            self.problems[name] = f"there is no {name}"
        except (DataError, SettingError, OSError) as error:
            self.problems[name] = shown(" ".join(str(error).split()))
        return None

    def load(self, path: Path) -> dict[str, Any] | None:
        """The JSON object in a file below this directory; None as from `attempt`."""
        name = self.place(path)
        return self.attempt(name, self.json, name)

    def place(self, path: Path) -> str:
        """The path of a file or a folder from this directory on."""
        return path.relative_to(self.path).as_posix()

    def damaged(self) -> list[str]:
        """One line for each file that is there, but could not be read."""
        return [line for name, line in self.problems.items() if line != f"there is no {name}"]

    def locate(self, name: str) -> Path:
        """The path of a regular file in the directory."""
        path = self.path / name
        if not path.exists() and not path.is_symlink():
            raise FileNotFoundError(path)
        # Its content would become a part of the report, which may be passed on.
        inside = path.resolve().is_relative_to(self.path.resolve())
        if not path.is_file() or not inside:
            raise DamagedFileError(f"{path} is not a regular file in this directory")
        return path

    def text(self, name: str) -> str:
        """The content of a text file."""
        path = self.locate(name)
        try:
            return files.read_bytes(path).decode()
        except (OSError, ValueError) as error:
            raise DamagedFileError(f"{path} is damaged ({error})") from None

    @contextlib.contextmanager
    def checked(self, name: str) -> Iterator[None]:
        """A block that takes values from a file.

        Raises:
            DamagedFileError: the block raised a KeyError of a column, or a ValueError.
        """
        try:
            yield
        except (KeyError, ValueError) as error:
            reason = f"there is no column {error}" if isinstance(error, KeyError) else str(error)
            raise DamagedFileError(f"{self.path / name} is damaged ({reason})") from None

    def json(self, name: str) -> dict[str, Any]:
        """A JSON object."""
        return files.read_json(self.locate(name), files.MOST_TEXT)

    def table(self, name: str) -> tuple[list[str], list[list[str]]]:
        """The header and the rows of a csv file; an incomplete last line is ignored."""
        text = self.text(name)
        lines = csv.reader(io.StringIO(text[: text.rfind("\n") + 1]), strict=True)
        try:
            header = next(lines, [])
            rows = list(lines)
        except csv.Error as error:
            raise DamagedFileError(
                f"{self.path / name} is damaged (line {lines.line_num}: {error})"
            ) from None
        for number, row in enumerate(rows, 2):
            if len(row) != len(header):
                raise DamagedFileError(
                    f"{self.path / name} is damaged (row {number}: {len(row)} values instead of "
                    f"{len(header)})"
                )
        return header, rows

    def rows(self, name: str) -> list[dict[str, str]]:
        """The rows of a csv file by column."""
        header, lines = self.table(name)
        return [dict(zip(header, line, strict=True)) for line in lines]

    def history(self, folder: str = "") -> History:
        """The measurements of a run; if they are damaged, their copy in a checkpoint.

        Args:
            folder: the directory of the run, below this one.
        """
        path = self.locate(f"{folder}/{METRICS}" if folder else METRICS)
        return read_history(path.parent) if self.compared else History.read(path)

    def arrays(self, name: str) -> dict[str, np.ndarray]:
        """The arrays of an npz file."""
        path = self.locate(name)
        try:
            with zipfile.ZipFile(path) as archive:
                size = sum(entry.file_size for entry in archive.infolist())
            if size > _MAX_ARRAYS:
                raise ValueError(f"more than {_MAX_ARRAYS} bytes when unpacked")
            with np.load(path, allow_pickle=False) as arrays:
                return {key: arrays[key] for key in arrays.files}
        # NumPy and zipfile raise many kinds of errors for files that are not what they should be.
        except Exception as error:
            raise DamagedFileError(f"{path} is damaged ({error})") from None

    def folders(self, pattern: str) -> Iterator[Path]:
        """The folders in the directory that hold a file of this pattern, sorted; no links."""
        root = self.path.resolve()
        for path in sorted(self.path.glob(pattern)):
            if path.parent.resolve().is_relative_to(root):
                yield path.parent


def numbers(values: Mapping[str, Any]) -> dict[str, Any]:
    """The values that are numbers of ordinary size, true or false."""
    return {
        name: value
        for name, value in values.items()
        if isinstance(value, int | float) and abs(value) < tables.LARGEST
    }
