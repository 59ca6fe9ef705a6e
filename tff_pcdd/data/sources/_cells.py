"""The cells of a table's columns, and the vectors that they are encoded to.

What the encoding needs, such as medians and categories, comes from the samples for training alone.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterator, Sequence

import numpy as np

from tff_pcdd.data import encoding
from tff_pcdd.data.encoding import Column
from tff_pcdd.data.sources._statistics import measure
from tff_pcdd.data.sources._tasks import texts_hint
from tff_pcdd.errors import DataError

MEDIAN, MEAN = "median", "mean"

# More categories than these are most likely the numbers or names of single samples.
_MOST = 1000

# By how many standard deviations the mean of such numbers differs from 0.
_FAR = 16


@dataclasses.dataclass(frozen=True)
class Cells:
    """Columns of a table as they are read.

    Attributes:
        x: float64 [n, columns]: numbers, or the positions of categories; NaN where one is missing.
        names: the names of the columns.
        categories: for each column, the categories of all samples; None for numbers.
    """

    x: np.ndarray
    names: Sequence[str]
    categories: Sequence[Sequence[str] | None]

    def numbers(self) -> Iterator[tuple[str, np.ndarray]]:
        """The names and the values, [n], of the columns of numbers."""
        for name, column, known in zip(self.names, self.x.T, self.categories, strict=True):
            if known is None:
                yield name, column

    def fit(
        self,
        place: str,
        train: np.ndarray,
        impute: str | None,
        shifted: Collection[str],
        markers: Sequence[str],
        texts: Sequence[str],
    ) -> tuple[Column, ...]:
        """How the cells are encoded, from those of the samples for training.

        Args:
            place: the table, for messages.
            train: their cells, float64 [n, columns].
            impute: MEDIAN or MEAN, which replaces missing numbers; None if nothing is missing.
            shifted: the columns of numbers from which their mean is subtracted.
            markers, texts: numbers and texts that stand for a missing value.
        """
        columns = []
        for name, cells, known in zip(self.names, train.T, self.categories, strict=True):
            is_missing = np.isnan(cells)
            there = cells[~is_missing]
            if not there.size:
                raise DataError(
                    f"{place}: column {name!r} has no value in any training sample; leave it out"
                )
            has_indicator = bool(is_missing.any())
            if known is None:
                fill = None
                if impute is not None:
                    fill = float(np.median(there) if impute == MEDIAN else there.mean())
                offset = _middle(there) if name in shifted else 0.0
                columns.append(Column(name, None, fill, has_indicator, offset, tuple(markers)))
                continue
            found = tuple(known[position] for position in np.unique(there).astype(int))
            if len(found) > _MOST:
                hint = texts_hint(known[int(position)] for position in there)
                raise DataError(
                    f"{place}: column {name!r} has {len(found)} categories, more than {_MOST}; "
                    f"{hint or 'leave it out, or join rare ones'}"
                )
            column = Column(name, found, None if impute is None else 0.0, has_indicator)
            missing = tuple(texts if column.is_text else markers)
            columns.append(dataclasses.replace(column, missing=missing))
        return tuple(columns)

    def unknown(self, x: np.ndarray, columns: Sequence[Column]) -> list[np.ndarray]:
        """For each column, the rows of cells, [n, columns], with a category it does not have."""
        return [
            np.flatnonzero(
                (column.categories is not None)
                & ~np.isnan(cells)
                & ~np.isin(cells, self._positions(index, column))
            )
            for index, (column, cells) in enumerate(zip(columns, x.T, strict=True))
        ]

    def encode(self, x: np.ndarray, columns: Sequence[Column]) -> np.ndarray:
        """The vectors of cells, [n, columns]; see `encoding.encode`.

        An unknown category is like a missing one.
        """
        coded = x.copy()
        for index, column in enumerate(columns):
            if (names := self.categories[index]) is not None:
                codes = np.full(len(names), np.nan)
                codes[self._positions(index, column)] = column.codes
                there = ~np.isnan(x[:, index])
                coded[there, index] = codes[x[there, index].astype(int)]
        return encoding.encode(coded, columns)

    def _positions(self, index: int, column: Column) -> list[int]:
        """The positions of a column's categories among those of all samples."""
        known = {name: code for code, name in enumerate(self.categories[index] or ())}
        return [known[name] for name in column.categories or ()]


def is_far(numbers: np.ndarray) -> np.ndarray:
    """Whether numbers, [n, ...], are so far from 0 that without their mean, float32 holds more of
    their digits; bool [...].
    """
    return np.abs(np.nanmean(numbers, axis=0)) > _FAR * np.nanstd(numbers, axis=0)


def num_different(numbers: np.ndarray) -> int:
    """How many different numbers there are, without NaN."""
    return len(np.unique(numbers[~np.isnan(numbers)]))


def num_rounded(numbers: np.ndarray) -> int:
    """How many of them are different in float32."""
    return num_different(numbers.astype(np.float32))


def _middle(numbers: np.ndarray) -> float:
    """Their mean, with four digits of their standard deviation."""
    # Around one of them, as squares of large numbers would leave no digit of the deviation.
    (mean,), _ = measure([(numbers - numbers[0])[:, None]], 1.0)
    return float(numbers[0] + mean)
