"""Columns of a table, converted to numbers."""

from __future__ import annotations

import functools
import itertools
import re
import textwrap
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from tff_pcdd.data.checks import warn
from tff_pcdd.data.sources._names import Row, column_name
from tff_pcdd.data.sources._numerals import (
    has_decimal_commas,
    may_have_thousands,
    plain_numbers,
    shows_decimals,
    with_points,
)
from tff_pcdd.data.sources._tasks import one_hot_hint, texts_hint
from tff_pcdd.errors import DataError, nearest, question


class Columns:
    """The columns of a table.

    Args:
        place: the file, or what else it is, for messages.
        columns: the values of each column, by its name.
        rows: the number of each row in messages, perhaps with its file; counted from 0 by default.
        delimiter: what separated the cells in a file; beside a comma, there are no decimal commas.
        markers: texts that stand for a missing value, besides the usual ones.
        classes: for columns whose file names their classes, these names in their order.

    Attributes:
        place: as given.
        rows: as given, or the default.
        classes: as given.
        by_file: the column that holds names of files, because the files have no such column.

    Raises:
        DataError: if columns differ in length.
    """

    by_file: str | None = None

    def __init__(
        self,
        place: str,
        columns: Mapping[str, Any],
        rows: Sequence[Row] | None = None,
        delimiter: str = ",",
        markers: Collection[str] = (),
        classes: Mapping[str, Sequence[str]] | None = None,
    ):
        lengths = {len(column): name for name, column in columns.items()}
        if len(lengths) > 1:
            (one, first), (other, second), *_ = lengths.items()
            raise DataError(
                f"{place}: column {first!r} has {one} values, and column {second!r} has {other}"
            )
        self.place = place
        self.rows: Sequence[Row] = range(max(lengths, default=0)) if rows is None else rows
        self.classes = classes or {}
        self._columns = columns
        self._delimiter = delimiter
        self._markers = markers
        self._decimals: dict[str, bool] = {}

    @property
    def names(self) -> list[str]:
        """The names of the columns, in their order."""
        return list(self._columns)

    @property
    def lengths(self) -> list[int]:
        """The number of rows of each file."""
        return [len(self.rows)]

    def __contains__(self, name: str) -> bool:
        return column_name(name) in self._columns

    def values(self, name: str, setting: str) -> Sequence[Any]:
        """The values of a column.

        Args:
            name: its name.
            setting: the setting that names it, for the message; empty if none does.

        Raises:
            DataError: if there is no such column.
        """
        name = column_name(name)
        if name not in self._columns:
            there = textwrap.shorten(", ".join(map(str, self._columns)), 200)
            other = f"; {setting} can name another" if setting else ""
            raise DataError(
                f"{self.place}: column {name!r} is missing, there are {there}"
                + (one_hot_hint(self._columns, name) or other)
                + self.separator_hint()
                + question(nearest(name, map(str, self._columns)))
            )
        return self._columns[name]

    def separator_hint(self) -> str:
        """The end of an error about a file that seems to have a single column; empty for others."""
        if len(self._columns) > 1 or not re.search(r"\w\W\w", str(*self._columns)):
            return ""
        return (
            "; if other characters than commas, semicolons or tabs separate them, add sep=| first"
        )

    @functools.cached_property
    def _has_commas(self) -> bool:
        """Whether numbers are written with decimal commas."""
        return self._delimiter != "," and any(
            has_decimal_commas(column, self._delimiter, self._markers)
            for column in self._columns.values()
        )

    def plain_numbers(self, name: str, setting: str) -> Sequence[Any]:
        """The values of a column of numbers as `float` reads them, and others as they are.

        Raises:
            DataError: if there is no such column, or nobody knows which number a value is.
        """
        where = f"{self.place}: column {name!r}"
        values = self.values(name, setting)
        self._check_thousands(values, where)
        # Where commas separate cells, such numbers are in quotes; other columns show nothing.
        has_commas = self._has_commas or has_decimal_commas(values, "\t", self._markers)
        return plain_numbers(values, has_commas, where, self._markers)

    def _check_thousands(self, values: Sequence[Any], where: str) -> None:
        """Refuses or warns of numbers such as 1.100 of which no column shows what the mark means.

        Beside decimal commas, `plain_numbers` does it.
        """
        mark, other = (",", ".") if self._has_commas else (".", ",")
        found = may_have_thousands(values, mark, self._markers)
        if found is None or self._shows_decimals(mark):
            return
        number, small = found
        plain = number.replace(mark, "")
        if mark == ",":
            # Programs that separate cells by semicolons write decimal commas.
            if not self._shows_decimals(other):
                return
            reason = "others have decimal points"
        elif small and number.endswith("0"):
            reason = f"{small} has none"
        else:
            warn(
                f"{where}: {number} is read as a number with decimals; if it is one of thousands, "
                f"write {plain}"
            )
            return
        raise DataError(
            f"{where}: {number} may be a number of thousands or one with decimals, because "
            f"{reason}; write {plain}, or numbers with decimals and points in all cells"
        )

    def _shows_decimals(self, mark: str) -> bool:
        """Whether a column shows that a mark is that of decimals."""
        if mark not in self._decimals:
            self._decimals[mark] = any(
                shows_decimals(column, mark, self._markers) for column in self._columns.values()
            )
        return self._decimals[mark]

    def categories(self, name: str, setting: str) -> Sequence[Any]:
        """The values of a column of names, in whose numbers points are in place of decimal commas.

        Raises:
            DataError: if there is no such column.
        """
        values = self.values(name, setting)
        return with_points(values, self._markers) if self._has_commas else values

    def numbers(self, name: str, setting: str, missing: np.ndarray | None = None) -> np.ndarray:
        """The values of a column as float64.

        Args:
            name: its name.
            setting: the setting that names it, for the message.
            missing: where a value is missing, bool [n]; NaN takes its place.

        Raises:
            DataError: if there is no such column, or a value is not a finite number in float32, or
                nobody knows which one it is.
        """
        values = self.values(name, setting)
        exact = np.empty(len(values), np.float64)
        for index, value in enumerate(self.plain_numbers(name, setting)):
            try:
                # Python takes 1_000 for a number; in tables, it is rather a name.
                exact[index] = np.nan if isinstance(value, str) and "_" in value else value
            except (TypeError, ValueError):
                exact[index] = np.nan
        with np.errstate(over="ignore"):
            wrong = ~np.isfinite(exact.astype(np.float32))
        if missing is not None:
            wrong &= ~missing
            exact[missing] = np.nan
        if wrong.any():
            index = int(np.argmax(wrong))
            there = values if missing is None else itertools.compress(values, ~missing)
            hint = texts_hint(there) or (
                "write plain numbers; categorical_columns can name a column of texts"
            )
            if isinstance(values[index], list | tuple | dict | np.ndarray):
                hint = "make a column of each number, or save the vectors as x of an .npz file"
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
        return self._with(columns, [self.rows[index] for index in chosen], self._markers)

    def with_markers(self, markers: Collection[str]) -> Columns:
        """The same columns, in which further texts stand for a missing value."""
        return self._with(self._columns, self.rows, markers)

    def with_constant(self, name: str, value: Any) -> Columns:
        """The same columns, and one that holds the same value in all rows."""
        columns = {**self._columns, name: [value] * len(self.rows)}
        return self._with(columns, self.rows, self._markers)

    def _with(
        self, columns: Mapping[str, Any], rows: Sequence[Row], markers: Collection[str]
    ) -> Columns:
        return Columns(self.place, columns, rows, self._delimiter, markers, self.classes)
