"""Columns of a table, converted to numbers: decimal commas, thousands, and true and false."""

from __future__ import annotations

import functools
import itertools
import re
import textwrap
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from tff_pcdd.data.checks import warn
from tff_pcdd.data.sources._names import Row, as_names, is_missing
from tff_pcdd.data.sources._tasks import one_hot_hint, texts_hint
from tff_pcdd.errors import DataError, nearest, question
from tff_pcdd.text import composed

_WITH_COMMA = re.compile(r"[+-]?(\d*|[1-9]\d{0,2}(\.\d{3})+)(,\d+)?([eE][+-]?\d+)?")

# Numbers whose commas or points may separate thousands.
_THOUSANDS = {mark: re.compile(rf"[+-]?[1-9]\d{{0,2}}({re.escape(mark)}\d{{3}})+") for mark in ",."}

# A whole number that needs no separator of thousands.
_SMALL = re.compile(r"[+-]?\d{1,3}")

_BOOLEANS = {"true": 1.0, "false": 0.0}


class Columns:
    """The columns of a table.

    Args:
        place: the file, or what else it is, for messages.
        columns: the values of each column, by its name; all have the same length.
        rows: the number of each row in messages, perhaps with its file; counted from 0 by default.
        delimiter: what separated the cells in a file; beside a comma, there are no decimal commas.
        markers: texts that stand for a missing value, besides the usual ones.
        classes: for columns whose file names their classes, these names in their order.

    Attributes:
        by_file: the column that holds names of files, because the files have no such column.
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
        return composed(name) in self._columns

    def values(self, name: str, setting: str) -> Sequence[Any]:
        """The values of a column, which must exist.

        Args:
            name: its name.
            setting: the setting that names it, for the message; empty if none does.
        """
        name = composed(name)
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
            has_decimal_commas(self._texts(column), self._delimiter)
            for column in self._columns.values()
        )

    def _texts(self, values: Iterable[Any]) -> Iterator[str]:
        """The cells that are texts, without those that are missing."""
        texts = (value.strip() for value in values if isinstance(value, str))
        return (text for text in texts if not is_missing(text, self._markers))

    def plain_numbers(self, name: str, setting: str) -> Sequence[Any]:
        """The values of a column of numbers as `float` reads them, and others as they are.

        True is 1, false is 0, and 1.234,5 is 1234.5.
        """
        where = f"{self.place}: column {name!r}"
        values = self.values(name, setting)
        self._check_thousands(values, where)
        # Mostly the first text decides, and tables may have millions of them.
        words = (text.lower() for text in self._texts(values))
        if next(words, "") in _BOOLEANS and all(word in _BOOLEANS for word in words):
            return [
                _BOOLEANS.get(value.strip().lower(), value) if isinstance(value, str) else value
                for value in values
            ]
        # Where commas separate cells, such numbers are in quotes; other columns show nothing.
        if not self._has_commas and not has_decimal_commas(self._texts(values), "\t"):
            return values
        doubtful = next(filter(_THOUSANDS["."].fullmatch, self._texts(values)), None)
        if doubtful is not None and not self._shows_points(values):
            raise DataError(
                f"{where}: {doubtful} may be a number of thousands or one with decimals, because "
                "others have decimal commas; write numbers without separators of thousands"
            )
        return self._with_points(values)

    def _shows_points(self, values: Iterable[Any]) -> bool:
        """Whether a number such as 1.234,5 shows what points are in a column."""
        texts = list(self._texts(values))
        return has_decimal_commas(texts, ";") and any({*".,"} <= {*text} for text in texts)

    def _with_points(self, values: Sequence[Any]) -> Sequence[Any]:
        """Values with points in place of decimal commas, if all of them are such numbers."""
        if not has_decimal_commas(self._texts(values), ";"):
            return values
        return [
            value.replace(".", "").replace(",", ".")
            if isinstance(value, str) and not is_missing(value, self._markers)
            else value
            for value in values
        ]

    def _check_thousands(self, values: Sequence[Any], where: str) -> None:
        """Refuses or warns of numbers such as 1.100 of which no column shows what the mark means.

        Beside decimal commas, `plain_numbers` does it.
        """
        mark, other = (",", ".") if self._has_commas else (".", ",")
        found = may_have_thousands(self._texts(values), mark)
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
                shows_decimals(list(self._texts(column)), mark) for column in self._columns.values()
            )
        return self._decimals[mark]

    def categories(self, name: str, setting: str) -> Sequence[Any]:
        """The values of a column of names, in whose numbers points replace decimal commas."""
        values = self.values(name, setting)
        return self._with_points(values) if self._has_commas else values

    def as_names(
        self, values: Sequence[Any], what: str, is_there: np.ndarray | None = None
    ) -> list[str]:
        """Values of the rows, or of those that are there, bool [n], by the function `as_names`."""
        rows = self.rows
        if is_there is not None:
            values, rows = (list(itertools.compress(each, is_there)) for each in (values, rows))
        return as_names(values, what, self.place, rows)

    def numbers(self, name: str, setting: str, missing: np.ndarray | None = None) -> np.ndarray:
        """The values of a column as float64, all of them finite numbers in float32.

        Args:
            name, setting: as for `values`.
            missing: where a value is missing, bool [n]; NaN takes its place.
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
            advice = "; categorical_columns can name a column of texts" if setting else ""
            hint = texts_hint(there) or f"write plain numbers{advice}"
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


# Numbers as spreadsheets write them, in the texts of a column, without those that are missing.


def has_decimal_commas(texts: Iterable[str], delimiter: str) -> bool:
    """Whether they are numbers with decimal commas, in a table with this delimiter.

    Programs that write decimal commas write semicolons. Beside tabs, and in quotes, 1,234 may be
    either number, and is not taken for one.

    Example:
        >>> has_decimal_commas(["1,5", "20"], ";"), has_decimal_commas(["1,234", "2"], "\\t")
        (True, False)
    """
    texts = list(texts)
    commas = [text for text in texts if "," in text]
    if delimiter == "\t":
        commas = [text for text in commas if not _THOUSANDS[","].fullmatch(text)]
    return bool(commas) and all(map(_WITH_COMMA.fullmatch, texts))


def shows_decimals(texts: Sequence[str], mark: str) -> bool:
    """Whether they are numbers that show that a point or comma is that of decimals.

    Example:
        >>> [shows_decimals(texts, ".") for texts in (["1.5", "2"], ["1.500", "2"], ["a", "1.5"])]
        [True, False, False]
    """
    return any(mark in text and not _THOUSANDS[mark].fullmatch(text) for text in texts) and all(
        re.fullmatch(rf"[+-]?\d*({re.escape(mark)}\d+)?([eE][+-]?\d+)?", text) for text in texts
    )


def may_have_thousands(texts: Iterable[str], mark: str) -> tuple[str, str] | None:
    """Two of them of which the first may have a point or comma that separates thousands.

    Returns:
        The first one with the mark, and the first one without it; empty if all have it. None if a
        text shows that the mark is that of decimals, or no text has it. If a zero is last after
        the mark, and another number has no mark, it is most likely one of thousands, because
        programs either write the zeros of decimals or leave them out: it is the first one then.

    Example:
        >>> may_have_thousands(["950", "1.234", "1.100"], "."), may_have_thousands(["1.1"], ".")
        (('1.100', '950'), None)
    """
    marked: list[str] = []
    others: list[str] = []
    for text in texts:
        (marked if mark in text else others).append(text)
        if not (_THOUSANDS[mark] if mark in text else _SMALL).fullmatch(text):
            return None
    if not marked:
        return None
    likely = next((text for text in marked if others and text.endswith("0")), marked[0])
    return likely, others[0] if others else ""
