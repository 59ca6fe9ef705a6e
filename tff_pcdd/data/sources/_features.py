"""The columns of a table that are inputs: which ones, where values are missing, and their cells."""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from tff_pcdd.data import encoding
from tff_pcdd.data.checks import listed, warn
from tff_pcdd.data.sources._cells import Cells
from tff_pcdd.data.sources._columns import Columns
from tff_pcdd.data.sources._missing import refuse_missing
from tff_pcdd.data.sources._names import MARKERS, MISSING, in_order, is_missing, similar
from tff_pcdd.data.sources._own import OwnSamples
from tff_pcdd.data.sources._tasks import texts_hint
from tff_pcdd.errors import DataError

# How columns of numbers are called that say who a sample is of.
_NAMES_AN_ID = re.compile(
    r"(^|[\W_])(id|uid|mrn|pid)$|(?-i:[a-z]I[dD]$)|"
    r"(^|[\W_])(patient|patienten|pat)[\W_]*(no|nr|num|number|nummer)[\W_]*$",
    re.IGNORECASE,
)

# Why such columns are no inputs.
_IDS = "ids by their names"

# The fewest rows of which it is no accident that a column numbers them.
_FEWEST = 10


@dataclasses.dataclass(frozen=True, eq=False)
class Features:
    """The columns of a table that are inputs.

    Attributes:
        columns: the table.
        chosen: the names of the inputs; None for all columns without a role.
        roles: the columns that have another role.
        categorical: those of the inputs that hold categories.
        impute: what replaces missing values; None if they are refused.
        markers: texts that stand for a missing value, besides the usual ones.
        keeps_texts: whether the usual ones are names of categories.
    """

    columns: Columns
    chosen: Sequence[str] | None
    roles: Collection[str]
    categorical: Sequence[str]
    impute: str | None
    markers: Sequence[str]
    keeps_texts: bool

    @functools.cached_property
    def names(self) -> Sequence[str]:
        """The names of the inputs; warns of columns that say nothing about a sample."""
        if self.chosen is not None:
            return self.chosen
        names = [name for name in self.columns.names if name not in self.roles]
        # Ids that are numbers are left out when they have been read, see `_informative`.
        names = self._without(names, _IDS, _are_text_ids)
        if self.impute is None:
            # With impute, they are constants.
            empty = "without any value"
            names = self._without(names, empty, lambda _, there: next(there, None) is None)
        return names

    def _without(
        self, names: Sequence[str], reason: str, says_nothing: Callable[[str, Iterator[Any]], bool]
    ) -> list[str]:
        """The columns but those whose values, without missing ones, say nothing; warns of these.

        Columns of categories stay.
        """
        left_out = []
        for name in names:
            values = self.columns.values(name, "feature_columns")
            there = (value for value in values if not is_missing(value, self.markers))
            if name not in self.categorical and says_nothing(name, there):
                left_out.append(name)
        if left_out and self.columns.rows:
            _warn_of_left_out(self.columns.place, left_out, reason)
        return [name for name in names if name not in left_out]

    def inputs(self) -> dict[str, Sequence[Any]]:
        """The values of all inputs, by what they are, for messages."""
        return {f"column {name!r}": self._values(name) for name in self.names}

    def cells(self) -> tuple[Cells, int]:
        """The cells of the inputs, and how many of them are missing."""
        place, names = self.columns.place, self.names
        found, known, missing = [], [], {}
        for name in names:
            lacking = self._lacking(name)
            if lacking.any():
                missing[name] = int(lacking.sum())
            if name in self.categorical:
                read, categories = _read_categories(self.columns, name, lacking)
            else:
                read, categories = self._numbers(name, lacking), None
            found.append(read)
            known.append(categories)
        if missing:
            counts = ", ".join(f"column {name!r} in {count}" for name, count in missing.items())
            warn(f"{place}: missing: {counts}; impute={self.impute} replaces the values")
        kept = list(range(len(names)))
        if self.chosen is None:
            kept = _informative(self.columns, names, found, self.categorical)
        cells = Cells(
            np.stack([found[index] for index in kept], axis=1),
            [names[index] for index in kept],
            [known[index] for index in kept],
        )
        return cells, sum(missing.get(name, 0) for name in cells.names)

    def common(self, is_category: bool) -> Collection[str]:
        """The texts that always stand for a missing value."""
        return MISSING if self.keeps_texts and is_category else MARKERS

    def _values(self, name: str) -> Sequence[Any]:
        """The values of an input, with decimal points; true and false are numbers 1 and 0."""
        if name in self.categorical:
            return self.columns.categories(name, "categorical_columns")
        return with_markers(self.columns.plain_numbers(name, "feature_columns"), self.markers)

    def _lacking(self, name: str) -> np.ndarray:
        """Where the value of an input is missing, bool [n]; refused if nothing replaces it.

        Without further markers, the column of numbers itself refuses it.
        """
        if self.impute is None and name not in self.categorical and not self.markers:
            return np.zeros(len(self.columns.rows), bool)
        lacking = self._where_lacking(name)
        if self.impute is None and lacking.any():
            self._refuse_missing()
        return lacking

    def _where_lacking(self, name: str) -> np.ndarray:
        """Where the value of an input is missing, bool [n]."""
        common = self.common(name in self.categorical)
        return np.array(
            [is_missing(each, self.markers, common) for each in self._values(name)], bool
        )

    def _numbers(self, name: str, lacking: np.ndarray) -> np.ndarray:
        """The values of an input of numbers; an error names further columns that hold others."""
        try:
            return self.columns.numbers(name, "feature_columns", lacking)
        except DataError:
            names = [other for other in self.names if other not in self.categorical]
            errors = {
                other: error
                for other in names[names.index(name) :]
                if (error := self._error_of(other))
            }
            if not errors:
                self._refuse_missing()
                raise
            first, *others = errors
            also = f"; {listed('column', others)} too" if others else ""
            raise DataError(f"{errors[first]}{also}") from None

    def _error_of(self, name: str) -> DataError | None:
        """Why values of a column are no numbers, those that are missing aside; None if they are."""
        try:
            self.columns.numbers(name, "feature_columns", self._where_lacking(name))
        except DataError as error:
            return error
        return None

    def _refuse_missing(self) -> None:
        """Refuses the missing values of all inputs, if there are some."""
        found = {f"column {name!r}": self._where_lacking(name) for name in self.names}
        if missing := {what: lacking for what, lacking in found.items() if lacking.any()}:
            refuse_missing(self.columns.place, self.inputs(), missing, self.columns.rows)


def check_categories(cells: Cells, samples: OwnSamples, columns: Sequence[encoding.Column]) -> None:
    """Warns of categories without training samples, which are taken for missing, if they may be."""
    for column, positions, x, known in zip(
        columns, cells.unknown(samples.x, columns), samples.x.T, cells.categories, strict=True
    ):
        if not len(positions) or known is None:
            continue
        first = int(positions[0])
        category = known[int(x[first])]
        if column.fill is None:
            texts = [known[int(position)] for position in x[~np.isnan(x)]]
            hint = texts_hint(texts) or "impute=median takes it for missing"
            raise DataError(
                f"{samples.place}, {samples.shown(first)}: {category!r:.40} in column "
                f"{column.name!r} is a category of no training sample; {hint}"
            )
        warn(
            f"{samples.place}: {len(positions)} validation or test samples have categories of "
            f"column {column.name!r} that no training sample has, such as {category!r:.40} in "
            f"{samples.shown(first)}; they are taken for missing"
        )


def _read_categories(
    columns: Columns, name: str, missing: np.ndarray
) -> tuple[np.ndarray, list[str]]:
    """The position of each sample's category, float64 [n], NaN where missing; all categories."""
    values = columns.categories(name, "categorical_columns")
    names = columns.as_names(values, f"category of column {name!r}", ~missing)
    known = in_order(names)
    for one, other in similar(known):
        warn(
            f"{columns.place}: categories {one!r:.40} and {other!r:.40} of column {name!r} differ "
            "only in case, blanks or the like; they are two categories, unless you write them alike"
        )
    position = {category: number for number, category in enumerate(known)}
    read = np.full(len(values), np.nan)
    read[~missing] = [position[category] for category in names]
    return read, known


def _are_text_ids(name: str, values: Iterable[Any]) -> bool:
    """Whether a column holds ids by its name, and texts."""
    return bool(_NAMES_AN_ID.search(name)) and any(map(_is_text, values))


def _is_text(value: Any) -> bool:
    """Whether a value is no number, with a point or a comma before decimals."""
    try:
        float(str(value).replace(",", "."))
    except ValueError:
        return True
    return False


def as_number(text: str) -> str:
    """A number as it is usually written; empty if the text is none."""
    try:
        number = float(text)
    except ValueError:
        return ""
    if not np.isfinite(number):
        return ""
    return str(int(number)) if number.is_integer() else str(number)


def with_markers(values: Sequence[Any], markers: Sequence[str]) -> Sequence[Any]:
    """Values of a column of numbers, in which a marker takes the place of those equal in float32.

    Exported models compare numbers in float32, and columns of float32 hold 9.9 as 9.899999618….
    """
    known = {_in_float32(number): text for text in markers if (number := as_number(text))}
    known.pop(None, None)
    return [known.get(_in_float32(value), value) for value in values] if known else values


def _in_float32(value: Any) -> float | None:
    """A number, rounded to float32; None for what is no finite number there."""
    try:
        with np.errstate(over="ignore"):
            number = float(np.float32(value))
    except (TypeError, ValueError):
        return None
    return number if np.isfinite(number) else None


def _informative(
    table: Columns, names: Sequence[str], columns: Sequence[np.ndarray], categorical: Sequence[str]
) -> list[int]:
    """The positions of columns that say something of a sample; warns of the others."""
    reasons: dict[str, list[str]] = {}
    place, kept = table.place, []
    for index, (name, column) in enumerate(zip(names, columns, strict=True)):
        if len(np.unique(column)) <= 1:
            reasons.setdefault("constant", []).append(name)
        elif name not in categorical and _numbers_rows(column, table.lengths):
            reasons.setdefault("running numbers of the rows", []).append(name)
        elif name == "" or name.startswith("Unnamed: "):
            reasons.setdefault("nothing says what it holds", []).append(name)
        elif _NAMES_AN_ID.search(name) and name not in categorical:
            reasons.setdefault(_IDS, []).append(name)
        else:
            kept.append(index)
    for reason, left_out in reasons.items():
        _warn_of_left_out(place, left_out, reason)
    if not kept:
        raise DataError(f"{place}: no column is left that tells samples apart")
    return kept


def _warn_of_left_out(place: str, names: Sequence[str], reason: str) -> None:
    shown = listed("column", [name or "without a name" for name in names])
    warn(f"{place}: {shown} {'is' if len(names) == 1 else 'are'} left out: {reason}")


def _numbers_rows(column: np.ndarray, lengths: Sequence[int]) -> bool:
    """Whether a column holds consecutive whole numbers, each of them once, in any order.

    In a folder, those of each file may begin anew.
    """
    of_files = np.split(column, np.cumsum(lengths)[:-1])
    for parts in ([column], of_files):
        steps = np.concatenate([np.diff(np.sort(part)) for part in parts])
        if len(steps) >= _FEWEST - 1 and (steps == 1).all():
            return True
    return False
