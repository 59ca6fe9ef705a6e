"""Columns of a table, converted to numbers."""

from __future__ import annotations

import functools
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tff_pcdd.data.checks import warn
from tff_pcdd.data.sources._names import is_missing
from tff_pcdd.data.sources._numerals import has_decimal_commas, plain_numbers
from tff_pcdd.data.sources._tasks import one_hot_hint
from tff_pcdd.errors import DataError


class Columns:
    """The columns of a table.

    Args:
        place: the file, or what else it is, for messages.
        columns: the values of each column, by its name.
        rows: the number of each row in messages; counted from 0 by default.
        delimiter: what separated the cells in a file; beside a comma, there are no decimal commas.

    Attributes:
        place: as given.
        rows: as given, or the default.

    Raises:
        DataError: if columns differ in length.
    """

    def __init__(
        self,
        place: str,
        columns: Mapping[str, Any],
        rows: Sequence[int] | None = None,
        delimiter: str = ",",
    ):
        lengths = {len(column): name for name, column in columns.items()}
        if len(lengths) > 1:
            (one, first), (other, second), *_ = lengths.items()
            raise DataError(
                f"{place}: column {first!r} has {one} values, and column {second!r} has {other}"
            )
        self.place = place
        self.rows = range(max(lengths, default=0)) if rows is None else rows
        self._columns = columns
        self._delimiter = delimiter

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
                f"{self.place}: column {name!r} is missing, there are {there}; "
                + (one_hot_hint(self._columns, name) or f"; {setting} can name another")[2:]
            )
        return self._columns[name]

    @functools.cached_property
    def _has_commas(self) -> bool:
        """Whether numbers are written with decimal commas."""
        return self._delimiter != "," and any(
            has_decimal_commas(column, self._delimiter) for column in self._columns.values()
        )

    def numbers(self, name: str, setting: str) -> np.ndarray:
        """The values of a column as float32.

        Raises:
            DataError: if there is no such column, or a value is not a finite number, or nobody
                knows which one it is.
        """
        values = self.values(name, setting)
        plain = plain_numbers(values, self._has_commas, f"{self.place}: column {name!r}")
        exact = np.empty(len(values), np.float64)
        for index, value in enumerate(plain):
            try:
                exact[index] = value
            except (TypeError, ValueError):
                exact[index] = np.nan
        with np.errstate(over="ignore"):
            column = exact.astype(np.float32)
        for index, (row, value) in enumerate(zip(self.rows, values, strict=True)):
            if not np.isfinite(column[index]):
                hint = "; missing=drop leaves such rows out" if is_missing(value) else ""
                raise DataError(
                    f"{self.place}, row {row}: {str(value)!r:.40} in column {name!r} is not a "
                    f"finite number{hint}"
                )
        if len(np.unique(column)) < len(np.unique(exact)):
            warn(
                f"{self.place}: the {len(np.unique(exact))} different numbers of column {name!r} "
                f"become {len(np.unique(column))} in float32; subtract {exact.min():.17g} from them"
            )
        return column

    def take(self, positions: np.ndarray) -> Columns:
        """The rows at some positions."""
        chosen = positions.tolist()
        columns = {
            name: [values[index] for index in chosen] for name, values in self._columns.items()
        }
        rows = [self.rows[index] for index in chosen]
        return Columns(self.place, columns, rows, self._delimiter)
