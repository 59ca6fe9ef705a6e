"""Numbers as spreadsheets write them: decimal commas, and true and false."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

from tff_pcdd.data.sources._names import is_missing
from tff_pcdd.errors import DataError

_WITH_COMMA = re.compile(r"[+-]?(\d*|\d{1,3}(\.\d{3})+)(,\d+)?([eE][+-]?\d+)?")

# Numbers whose commas or points may separate thousands.
_THOUSANDS = {mark: re.compile(rf"[+-]?[1-9]\d{{0,2}}({re.escape(mark)}\d{{3}})+") for mark in ",."}

_BOOLEANS = {"true": 1.0, "false": 0.0}


def has_decimal_commas(values: Iterable[Any], delimiter: str) -> bool:
    """Whether the cells of a column are numbers with decimal commas.

    Args:
        values: the cells; those that are missing do not count.
        delimiter: what separates the cells of the table. Programs that write decimal commas write
            semicolons. Beside tabs, 1,234 may be either number, and is not taken for one.

    Example:
        >>> has_decimal_commas(["1,5", "20", ""], ";"), has_decimal_commas(["1,234", "2"], "\\t")
        (True, False)
    """
    texts = _texts(values)
    commas = [text for text in texts if "," in text]
    if delimiter == "\t":
        commas = [text for text in commas if not _THOUSANDS[","].fullmatch(text)]
    return bool(commas) and all(map(_WITH_COMMA.fullmatch, texts))


def plain_numbers(values: Sequence[Any], commas: bool, where: str) -> Sequence[Any]:
    """Cells of a column as `float` reads them: true is 1, false is 0, and 1.234,5 is 1234.5.

    Cells that are no such numbers stay as they are.

    Args:
        values: the cells.
        commas: whether the table has decimal commas.
        where: the column, for messages.

    Raises:
        DataError: if the table has decimal commas, and points that may separate thousands.

    Example:
        >>> plain_numbers(["TRUE", "", "false"], False, "column smoker")
        [1.0, '', 0.0]
    """
    texts = _texts(values)
    if texts and all(text.lower() in _BOOLEANS for text in texts):
        return [
            _BOOLEANS.get(value.strip().lower(), value) if isinstance(value, str) else value
            for value in values
        ]
    if not commas:
        return values
    if has_decimal_commas(values, ";"):
        return [
            value.replace(".", "").replace(",", ".") if isinstance(value, str) else value
            for value in values
        ]
    doubtful = next((text for text in texts if _THOUSANDS["."].fullmatch(text)), None)
    if doubtful is not None:
        raise DataError(
            f"{where}: {doubtful} may be a number of thousands or one with decimals, because other "
            "columns have decimal commas; write numbers without separators of thousands"
        )
    return values


def _texts(values: Iterable[Any]) -> list[str]:
    """The cells that are texts, without those that are missing."""
    return [value.strip() for value in values if isinstance(value, str) and not is_missing(value)]
