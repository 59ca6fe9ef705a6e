"""Rows of a table as a trained model takes them: by the names of the columns, in any order."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tff_pcdd.data.checks import listed, warn
from tff_pcdd.data.encoding import Column
from tff_pcdd.data.sources._columns import Columns
from tff_pcdd.data.sources._features import with_markers
from tff_pcdd.data.sources._names import as_names, check_once, column_name, is_missing
from tff_pcdd.errors import DataError, nearest, question


def is_frame(table: Any) -> bool:
    """Whether this is a data frame, or another mapping from column names to values."""
    return isinstance(table, Mapping) or (hasattr(table, "columns") and hasattr(table, "keys"))


def frame(table: Any, place: str) -> Columns:
    """The columns of a data frame, or of any mapping from column names to values.

    Args:
        table: the data frame.
        place: what it is called in messages.

    Raises:
        DataError: if a column occurs twice, or columns differ in length.
    """
    names = {column: column_name(str(column)) for column in table}
    check_once([names[column] for column in table], "column", place)
    return Columns(place, {names[column]: list(table[column]) for column in table})


def cells(table: Columns, known: Sequence[Column]) -> np.ndarray:
    """The cells of a table, read as in training; columns that the model does not know are ignored.

    A category that the model does not know is taken for missing, with a warning.

    Args:
        table: the table.
        known: the columns of the model.

    Returns:
        float64 [n, columns]: numbers, or the codes of categories; NaN where a value is missing.

    Raises:
        DataError: if a column is missing, a value is no number, or a value is missing or a category
            unknown where the model replaces nothing.
    """
    if lacking := [column.name for column in known if column.name not in table]:
        there = textwrap.shorten(", ".join(table.names), 200)
        meant = dict.fromkeys(" or ".join(nearest(name, table.names)) for name in lacking)
        raise DataError(
            f"{table.place}: {listed('column', lacking)} {'is' if len(lacking) == 1 else 'are'} "
            f"missing, there are {there}{question(list(filter(None, meant)), ', ')}"
        )
    table = table.with_markers({marker for column in known for marker in column.missing})
    read = [_categories if column.categories is not None else _numbers for column in known]
    found = [of(table, column) for of, column in zip(read, known, strict=True)]
    return np.stack(found, axis=1)


def _numbers(table: Columns, column: Column) -> np.ndarray:
    values = with_markers(table.plain_numbers(column.name, ""), column.missing)
    lacking = np.array([is_missing(value, column.missing) for value in values], bool)
    _check_missing(table, column, lacking)
    return table.numbers(column.name, "", lacking)


def _categories(table: Columns, column: Column) -> np.ndarray:
    values = table.categories(column.name, "")
    codes = dict(zip(column.categories or (), column.codes, strict=True))
    # A text that usually says that a value is missing may be a category, see `missing`.
    lacking = np.array(
        [str(each).strip() not in codes and is_missing(each, column.missing) for each in values],
        bool,
    )
    _check_missing(table, column, lacking)
    there = np.flatnonzero(~lacking)
    rows = [table.rows[index] for index in there]
    what = f"category of column {column.name!r}"
    names = as_names([values[index] for index in there], what, table.place, rows)
    if unknown := [position for position, name in enumerate(names) if name not in codes]:
        first = unknown[0]
        where = f"{names[first]!r:.40} in column {column.name!r}"
        if column.fill is None:
            meant = question(nearest(names[first], codes))
            raise DataError(
                f"{table.place}, row {rows[first]}: {where} is a category of no training sample"
                f"{meant}"
            )
        others = f" (and {len(unknown) - 1} others)" if len(unknown) > 1 else ""
        warn(
            f"{table.place}, row {rows[first]}{others}: {where} is a category of no training "
            "sample, and is taken for missing"
        )
    found = np.full(len(values), np.nan)
    found[there] = [codes.get(name, np.nan) for name in names]
    return found


def _check_missing(table: Columns, column: Column, lacking: np.ndarray) -> None:
    """Refuses missing values that the model does not replace."""
    if column.fill is None and lacking.any():
        others = f" (and in {lacking.sum() - 1} others)" if lacking.sum() > 1 else ""
        raise DataError(
            f"{table.place}, row {table.rows[int(np.argmax(lacking))]}{others}: column "
            f"{column.name!r} is missing, and the model was trained without impute, which replaces "
            "missing values"
        )
