"""How the columns of a table become the numbers of a vector, as plain data.

A missing number is replaced, and a category becomes one number for each category of its column, of
which one is 1 and the others are 0. `sources._cells` encodes the samples of a table in this way,
and `export.inputs` does the same in a graph, so that exported models take a table's own values.
"""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Sequence

import numpy as np

# Whole numbers that float32 holds, as they are usually written.
_CODE = re.compile(r"0|-?[1-9]\d{0,6}")


@dataclasses.dataclass(frozen=True)
class Column:
    """A column of a table as an input of a model.

    Attributes:
        name: its name in the table.
        categories: the values of a column of categories; None for a column of numbers.
        fill: what replaces a missing number, or each number of a missing category; None if a
            value must not be missing.
        has_indicator: whether a further number is 1 where the value is missing, and 0 elsewhere.
        offset: what is subtracted from the numbers before they are rounded to float32.
        missing: values that stand for a missing one.

    Example:
        >>> pain = Column("pain", ("none", "some"), fill=0.0, has_indicator=True)
        >>> pain.features
        ('pain = none', 'pain = some', 'pain is missing')
    """

    name: str
    categories: tuple[str, ...] | None = None
    fill: float | None = None
    has_indicator: bool = False
    offset: float = 0.0
    missing: tuple[str, ...] = ()

    @functools.cached_property
    def is_text(self) -> bool:
        """Whether its values are texts: categories that are not all whole numbers."""
        return self.categories is not None and not all(map(_CODE.fullmatch, self.categories))

    @functools.cached_property
    def codes(self) -> tuple[float, ...]:
        """The number that stands for each category: itself, or for texts its position."""
        if self.is_text:
            return tuple(map(float, range(len(self.categories or ()))))
        return tuple(map(float, self.categories or ()))

    @property
    def missing_codes(self) -> tuple[float, ...]:
        """The numbers that stand for a missing value, besides NaN."""
        return () if self.is_text else tuple(map(float, self.missing))

    @functools.cached_property
    def features(self) -> tuple[str, ...]:
        """What each of its numbers in the vector is."""
        values = [self.name]
        if self.categories is not None:
            values = [f"{self.name} = {category}" for category in self.categories]
        return (*values, *([f"{self.name} is missing"] if self.has_indicator else ()))

    @property
    def is_plain(self) -> bool:
        """Whether its numbers are taken as they are."""
        return self == Column(self.name)


def is_plain(columns: Sequence[Column] | None) -> bool:
    """Whether the numbers of all columns are taken as they are."""
    return all(column.is_plain for column in columns or ())


def features(columns: Sequence[Column]) -> list[str]:
    """What each number of a vector is."""
    return [name for column in columns for name in column.features]


def encode(cells: np.ndarray, columns: Sequence[Column]) -> np.ndarray:
    """The vectors of cells, float32 [n, numbers], in the order of `features(columns)`.

    Cells are float64 [n, columns]: numbers, or the codes of categories; NaN where one is missing.
    """
    blocks = []
    for index, column in enumerate(columns):
        values = cells[:, index, None]
        is_missing = np.isnan(values)
        if column.categories is None:
            filled = values if column.fill is None else np.where(is_missing, column.fill, values)
            blocks.append(filled - column.offset)
        else:
            blocks.append(values == np.array(column.codes))
        if column.has_indicator:
            blocks.append(is_missing)
    return np.concatenate([block.astype(np.float32) for block in blocks], axis=1)


def decode(x: np.ndarray, columns: Sequence[Column]) -> np.ndarray:
    """Cells that `encode` encodes to given vectors."""
    cells, start = np.empty((len(x), len(columns)), np.float64), 0
    for index, column in enumerate(columns):
        block = x[:, start : start + len(column.features)]
        start += block.shape[1]
        if column.categories is None:
            cells[:, index] = block[:, 0].astype(np.float64) + column.offset
            is_missing = column.has_indicator & (block[:, -1] == 1)
        else:
            hot = block[:, : len(column.categories)]
            cells[:, index] = np.array(column.codes)[hot.argmax(axis=1)]
            is_missing = ~hot.any(axis=1)
        cells[is_missing, index] = np.nan
    return cells
