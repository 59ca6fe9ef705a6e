"""Columns of a table: read from csv and parquet files, and converted to names and numbers."""

from __future__ import annotations

import csv
import io
import pathlib
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tff_pcdd.data.sources._image_lists import read_text
from tff_pcdd.data.sources._names import is_missing
from tff_pcdd.data.sources._places import check_file
from tff_pcdd.errors import DataError

CSV, PARQUET = ".csv", ".parquet"

# The first row of a csv file below its header, as spreadsheets number rows; blank rows count.
_FIRST_ROW = 2

_DELIMITERS = ",;\t"


class Columns:
    """The columns of a table.

    Args:
        place: the file, or what else it is, for messages.
        columns: the values of each column, by its name.
        rows: the number of each row in messages; counted from 0 by default.

    Attributes:
        place: as given.
        rows: as given, or the default.

    Raises:
        DataError: if columns differ in length.
    """

    def __init__(self, place: str, columns: Mapping[str, Any], rows: Sequence[int] | None = None):
        lengths = {len(column): name for name, column in columns.items()}
        if len(lengths) > 1:
            (one, first), (other, second), *_ = lengths.items()
            raise DataError(
                f"{place}: column {first!r} has {one} values, and column {second!r} has {other}"
            )
        self.place = place
        self.rows = range(max(lengths, default=0)) if rows is None else rows
        self._columns = columns

    @property
    def names(self) -> list[str]:
        """The names of the columns, in their order."""
        return list(self._columns)

    def __contains__(self, name: str) -> bool:
        return name in self._columns

    def values(self, name: str, setting: str) -> Sequence[Any]:
        """The values of a column.

        Args:
            name: its name.
            setting: the setting that names it, for the message.

        Raises:
            DataError: if there is no such column.
        """
        if name not in self._columns:
            there = textwrap.shorten(", ".join(map(str, self._columns)), 200)
            raise DataError(
                f"{self.place}: column {name!r} is missing, there are {there}; {setting} can name "
                "another"
            )
        return self._columns[name]

    def numbers(self, name: str, setting: str, missing: np.ndarray | None = None) -> np.ndarray:
        """The values of a column as float64.

        Args:
            name: its name.
            setting: the setting that names it, for the message.
            missing: where a value is missing, bool [n]; NaN takes its place.

        Raises:
            DataError: if there is no such column, or a value is not a finite number in float32.
        """
        values = self.values(name, setting)
        exact = np.empty(len(values), np.float64)
        for index, value in enumerate(values):
            try:
                exact[index] = value
            except (TypeError, ValueError):
                exact[index] = np.nan
        with np.errstate(over="ignore"):
            wrong = ~np.isfinite(exact.astype(np.float32))
        if missing is not None:
            wrong &= ~missing
            exact[missing] = np.nan
        if wrong.any():
            index = int(np.argmax(wrong))
            hint = "categorical_columns can name a column of texts"
            if is_missing(values[index]):
                hint = "missing=drop leaves such rows out, and impute=median replaces the values"
            raise DataError(
                f"{self.place}, row {self.rows[index]}: {str(values[index])!r:.40} in column "
                f"{name!r} is not a finite number; {hint}"
            )
        return exact

    def take(self, positions: np.ndarray) -> Columns:
        """The rows at some positions."""
        chosen = positions.tolist()
        columns = {
            name: [values[index] for index in chosen] for name, values in self._columns.items()
        }
        return Columns(self.place, columns, [self.rows[index] for index in chosen])


def read_columns(path: pathlib.Path) -> Columns:
    """The columns of a csv or parquet file.

    Raises:
        DataError: if it cannot be read, or holds no rows; names the file.
    """
    columns, rows = _read_parquet(path) if path.suffix.lower() == PARQUET else _read_csv(path)
    if not any(len(column) for column in columns.values()):
        raise DataError(f"{path}: the table is empty")
    return Columns(str(path), columns, rows)


def _read_csv(path: pathlib.Path) -> tuple[dict[str, list[str]], list[int]]:
    """The columns of a csv file, and the numbers of its rows."""
    text = read_text(path)
    header = text.partition("\n")[0]
    delimiter = max(_DELIMITERS, key=header.count)
    # Not `splitlines`, because quoted cells may contain line breaks.
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    try:
        names = [name.strip() for name in next(reader, [])]
        rows = {number: row for number, row in enumerate(reader, _FIRST_ROW) if row}
    except csv.Error as error:
        raise DataError(f"{path}, line {reader.line_num}: {error}") from error
    repeated = [name for name in names if names.count(name) > 1]
    if repeated:
        raise DataError(f"{path}: column {repeated[0]!r} occurs twice")
    for number, row in rows.items():
        if len(row) != len(names):
            raise DataError(
                f"{path}, row {number}: has {len(row)} cells, but there are {len(names)} columns"
            )
    columns = {name: [row[index] for row in rows.values()] for index, name in enumerate(names)}
    return columns, list(rows)


def _read_parquet(path: pathlib.Path) -> tuple[dict[str, list[Any]], None]:
    check_file(path)
    try:
        import pyarrow.parquet
    except ImportError:
        raise DataError(f"{path}: reading parquet needs pyarrow, which is not installed") from None
    try:
        table = pyarrow.parquet.read_table(path)
    # Arrow raises its own errors and those of the system.
    except Exception as error:
        reason = " ".join(str(error).split())[:200]
        raise DataError(f"{path} cannot be read as a parquet file: {reason}") from error
    return {name: table.column(name).to_pylist() for name in table.column_names}, None
