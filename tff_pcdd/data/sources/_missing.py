"""Rows of tables and arrays in which values are missing: refused, left out, or taken for names."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NoReturn

import numpy as np

from tff_pcdd.data.checks import warn
from tff_pcdd.data.sources._names import MARKERS, Row, is_missing
from tff_pcdd.errors import DataError
from tff_pcdd.settings import option
from tff_pcdd.text import plural, quoted, separated

# The most columns that a refusal names beside the first one.
_MOST_NAMED = 8

_WITH_COMMA = re.compile(r"[+-]?\d+,\d+")

# What people write for a missing label or site, but also for a class or a site of its own.
_LIKELY = re.compile(
    r"[-–—*.]+|\(?(n\.?/?a\.?|null|nil|missing|unknown|undefined|not (available|known))\)?",
    re.IGNORECASE,
)


@dataclasses.dataclass(frozen=True)
class MissingValues:
    """Mixin for data with rows, in which values may be missing."""

    missing: str = option(
        "refuse",
        "What is done with rows whose label, site, image or feature is missing: empty, NA, N/A, "
        "NULL, None, ? and the like. refuse names the first one; drop leaves the rows out; keep "
        "takes these texts, unless they are empty, for names.",
        choices=("refuse", "drop", "keep"),
    )
    missing_markers: str | None = option(
        None,
        "Further texts that say that a value is missing, separated by commas, such as -9, and in "
        "double quotes if they have commas.",
        type=str,
    )

    def markers(self) -> list[str]:
        """The texts of `missing_markers`, and numbers with a decimal comma also with a point."""
        texts = [text for text in separated(self.missing_markers) if text]
        numbers = filter(_WITH_COMMA.fullmatch, texts)
        return [*texts, *(number.replace(",", ".") for number in numbers)]

    def complete_rows(
        self,
        place: str,
        columns: Mapping[str, Sequence[Any]],
        rows: Sequence[Row] | None,
        features: Callable[[], Mapping[str, Sequence[Any]]] = dict,
    ) -> tuple[np.ndarray, dict[str, int]]:
        """The positions of the rows without missing values.

        Args:
            place: the table or array, for messages.
            columns: values that must not be missing, by what they are, for messages.
            rows: the numbers of the rows, for messages; counted from 0 by default.
            features: further values of which a refusal says, too, that they are missing.

        Returns:
            Positions, int64 [m], and the count of what was left out.
        """
        count = len(next(iter(columns.values()), ()))
        if self.missing == "keep":
            return np.arange(count), {}
        markers = self.markers()
        for what in ("the label", "the site"):
            different = {str(value).strip() for value in columns.get(what, ())}
            for text in sorted(filter(_LIKELY.fullmatch, different - {*MARKERS, *markers})):
                warn(
                    f"{place}: {what} {text!r:.40} may say that it is missing; if so, "
                    f"missing_markers={quoted(text):.40}"
                )
        lacking = where_missing(columns, markers)
        if not lacking:
            return np.arange(count), {}
        if self.missing == "refuse":
            known, further = set(columns), features()
            missing = {**lacking, **where_missing(further, markers)}
            refuse_missing(place, {**columns, **further}, missing, rows, known)
        parts = ", ".join(f"{what} in {there.sum()}" for what, there in lacking.items())[:200]
        is_lacking = np.logical_or.reduce(list(lacking.values()))
        if is_lacking.all():
            raise DataError(f"{place}: no row is left; missing: {parts}")
        left_out = int(is_lacking.sum())
        warn(f"{place}: {plural(left_out, 'row')} left out; missing: {parts}")
        return np.flatnonzero(~is_lacking), {"rows_left_out": left_out}


def where_missing(
    columns: Mapping[str, Sequence[Any]], markers: Collection[str]
) -> dict[str, np.ndarray]:
    """Where values are missing, bool [n], for the columns in which any is."""
    found = {
        what: np.array([is_missing(value, markers) for value in values], bool)
        for what, values in columns.items()
    }
    return {what: there for what, there in found.items() if there.any()}


def refuse_missing(
    place: str,
    columns: Mapping[str, Sequence[Any]],
    missing: Mapping[str, np.ndarray],
    rows: Sequence[Row] | None,
    names: Collection[str] = (),
) -> NoReturn:
    """Refuses missing values; names all columns that have some.

    Args:
        place: the table or array, for messages.
        columns: the values, by what they are.
        missing: where values are missing, bool [n]; not empty.
        rows: the numbers of the rows; counted from 0 by default.
        names: those of `columns` that are labels, sites and the like; others are features.
    """
    (first, there), *others = missing.items()
    index, count = int(np.argmax(there)), int(there.sum())
    texts = [f"{what} in {plural(int(found.sum()), 'row')}" for what, found in others]
    more = f" and {len(texts) - _MOST_NAMED} more columns" if len(texts) > _MOST_NAMED else ""
    also = f"; also missing: {', '.join(texts[:_MOST_NAMED])}{more}" if texts else ""
    every = np.logical_or.reduce(list(missing.values()))
    where = f"{place}, row {index if rows is None else rows[index]}"
    shown = f"it is {str(columns[first][index])!r:.40}"
    if count > 1:
        shown += f", and in {count - 1} others"
    rest = "such rows" if not others else f"{every.sum()} of {len(every)} rows"
    ways = [f"missing=drop leaves {rest} out"]
    if any(what in names for what in missing):
        ways.append("missing=keep takes texts for names")
    if any(what not in names for what in missing):
        ways.append(f"impute=median replaces {'features' if len(ways) > 1 else 'the values'}")
    advice = f"{', '.join(ways[:-1])}, and {ways[-1]}"
    raise DataError(f"{where}: {first} is missing ({shown}){also}; {advice}")
