"""The columns of a table's model: columns.json of an export, and the rows of a request.

A row is an object of values by the names of the columns, or a list of values in their order.
"""

from __future__ import annotations

import collections
import json
import math
import re
import unicodedata
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

FILE = "columns.json"

# The most names that a message lists.
_SHOWN = 20


class WrongRow(ValueError):
    """A request does not fit the columns, or has no rows."""


def format_of(request: Mapping[str, Any]) -> str:
    """The format of a request: by rows (`instances`), or by columns (`inputs`)."""
    given = [key for key in ("instances", "inputs") if key in request]
    if len(given) != 1:
        raise WrongRow("the request must contain either instances or inputs")
    return given[0]


class Column:
    """A column, made from its entry in columns.json."""

    def __init__(self, described: Mapping[str, Any]):
        self.name = _composed(str(described["name"]))
        self._may_be_missing = bool(described["may_be_missing"])
        given = described["missing_values"]
        self._missing = {_whole(text) for value in given for text in _texts(value)}
        self._codes: dict[str, float] | None = None
        if described["type"] == "category":
            given = described["categories"]
            self._codes = {str(category["name"]): float(category["code"]) for category in given}
            alike = collections.Counter(map(_whole, self._codes))
            self._whole = {
                _whole(name): code for name, code in self._codes.items() if alike[_whole(name)] == 1
            }

    def number(self, value: Any, largest: float, place: str) -> float:
        """The number that stands for a value in `features`; NaN if it is missing."""
        texts = _texts(value)
        is_marker = not self._missing.isdisjoint(map(_whole, texts))
        if value is None or is_marker or (self._codes is not None and "" in texts):
            if not self._may_be_missing:
                raise WrongRow(f"{place}: {self.name!r} is missing")
            return math.nan
        if self._codes is not None:
            for text in texts:
                if text in self._codes:
                    return self._codes[text]
            # Unless the table tells them apart, 1, 1.0 and "1.0" are the same category.
            if (code := self._whole.get(_whole(texts[0]))) is not None:
                return code
            known = _listed(self._codes)
            raise WrongRow(f"{place}: {self.name!r} is {_shown(value)}, not one of {known}")
        number = math.nan
        if isinstance(value, int | float) and not isinstance(value, bool):
            number = float(texts[-1])
        if not abs(number) <= largest:
            wanted = f"a number of at most {largest:.2g}{' or null' * self._may_be_missing}"
            wanted += " (true is 1, and false 0)" * isinstance(value, bool)
            raise WrongRow(f"{place}: {self.name!r} is {_shown(value)}, not {wanted}")
        return number


class Columns:
    """The columns of a model, in their order.

    Raises:
        OSError: the file cannot be read.
        ValueError: it is damaged.
    """

    def __init__(self, path: Path):
        try:
            described = json.loads(path.read_text(encoding="utf-8"))
            self._columns = {column.name: column for column in map(Column, described["columns"])}
        except (LookupError, TypeError, ValueError, RecursionError):
            raise ValueError(f"{path.name} is damaged") from None

    def rows(self, request: Mapping[str, Any], name: str) -> list[Any]:
        """The rows of a request, in row format (`instances`) or in columnar format (`inputs`)."""
        key = format_of(request)
        rows = request[key]
        if key == "inputs" and isinstance(rows, dict):
            rows = rows[name] if set(rows) == {name} else self._transposed(rows)
        if not isinstance(rows, list):
            raise WrongRow(f"{key}: must be a list of rows")
        return [
            row[name] if isinstance(row, dict) and self._is_input(row, name) else row
            for row in rows
        ]

    def _is_input(self, row: Mapping[str, Any], name: str) -> bool:
        """Whether an object names the input of the signature, and not a column of that name."""
        return set(row) == {name} and isinstance(row[name], list)

    def _transposed(self, columns: Mapping[str, Any]) -> list[list]:
        """The rows of columns that are given by their names."""
        values = self._in_order(columns, "inputs")
        if not all(isinstance(column, list) for column in values):
            raise WrongRow("inputs: each column must be a list")
        if len({len(column) for column in values}) > 1:
            raise WrongRow("inputs: the columns have different lengths")
        return [list(row) for row in zip(*values, strict=True)]

    def _in_order(self, given: Mapping[str, Any], place: str) -> list[Any]:
        """What is given by the names of the columns, in the order of the columns."""
        values = {_composed(name): value for name, value in given.items()}
        if unknown := [name for name in values if name not in self._columns]:
            raise WrongRow(
                f"{place}: {unknown[0]!r:.60} is not one of the columns {_listed(self._columns)}"
            )
        if lacking := [name for name in self._columns if name not in values]:
            raise WrongRow(f"{place}: lacks {_listed(lacking)}; null stands for a missing value")
        return [values[name] for name in self._columns]

    def batch(self, rows: list[Any], largest: float) -> np.ndarray:
        """The input `features` for rows, float64 [rows, columns]."""
        batch = np.empty((len(rows), len(self._columns)))
        for index, row in enumerate(rows):
            place = f"row {index}"
            if isinstance(row, dict):
                row = self._in_order(row, place)
            if not isinstance(row, list) or len(row) != len(self._columns):
                has = f"has {len(row)} values" if isinstance(row, list) else "is no list or object"
                raise WrongRow(f"{place}: {has}; the columns are {_listed(self._columns)}")
            batch[index] = [
                column.number(value, largest, place)
                for column, value in zip(self._columns.values(), row, strict=True)
            ]
        return batch


def largest(dtype: type[np.floating]) -> float:
    """The largest float64 that is rounded to a finite number of a type.

    JSON has the largest float32 as 3.4028235e+38, which is a little more.
    """
    limit = np.finfo(dtype).max
    half_step = (float(limit) - float(np.nextafter(limit, dtype(0)))) / 2
    return float(np.nextafter(float(limit) + half_step, 0))


def _texts(value: Any) -> list[str]:
    """A value as texts by which a table may name it, tidied as names of tables are."""
    if isinstance(value, list | dict):
        # The text of lists within lists may need more stack than there is.
        return ["a list or object"]
    if isinstance(value, bool):
        # As JSON, pandas and spreadsheets write it.
        return [str(value).lower(), str(value), str(value).upper()]
    text = _composed(" ".join(str(value).split()))
    # 1.0 in JSON may be a table's "1.0", or its 1.
    is_whole = isinstance(value, float) and value.is_integer()
    return [text, str(int(value))] if is_whole else [text]


def _whole(text: str) -> str:
    """A text without the decimals of a whole number."""
    return re.sub(r"^(-?\d+)\.0+$", r"\1", text)


def _composed(text: str) -> str:
    """A text in the form of Unicode in which names of tables are."""
    return unicodedata.normalize("NFC", text)


def _shown(value: Any) -> str:
    """A value for a message."""
    return f"{value if isinstance(value, str | int | float) else _texts(value)[0]!r:.60}"


def _listed(names: Any) -> str:
    names = [f"{name!r:.60}" for name in names]
    return ", ".join(names[:_SHOWN]) + ", …" * (len(names) > _SHOWN)
