"""Numbers as spreadsheets write them: decimal commas, and true and false."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any

from tff_pcdd.data.sources._names import is_missing
from tff_pcdd.errors import DataError

_WITH_COMMA = re.compile(r"[+-]?(\d*|[1-9]\d{0,2}(\.\d{3})+)(,\d+)?([eE][+-]?\d+)?")

# Numbers whose commas or points may separate thousands.
_THOUSANDS = {mark: re.compile(rf"[+-]?[1-9]\d{{0,2}}({re.escape(mark)}\d{{3}})+") for mark in ",."}

# A whole number that needs no separator of thousands.
_SMALL = re.compile(r"[+-]?\d{1,3}")

_BOOLEANS = {"true": 1.0, "false": 0.0}


def has_decimal_commas(
    values: Iterable[Any], delimiter: str, markers: Collection[str] = ()
) -> bool:
    """Whether the cells of a column are numbers with decimal commas.

    Args:
        values: the cells; those that are missing do not count.
        delimiter: what separates the cells of the table. Programs that write decimal commas write
            semicolons. Beside tabs, and in quotes, 1,234 may be either number, and is not taken for
            one.
        markers: texts that stand for a missing value, besides the usual ones.

    Example:
        >>> has_decimal_commas(["1,5", "20", ""], ";"), has_decimal_commas(["1,234", "2"], "\\t")
        (True, False)
    """
    texts = _texts(values, markers)
    commas = [text for text in texts if "," in text]
    if delimiter == "\t":
        commas = [text for text in commas if not _THOUSANDS[","].fullmatch(text)]
    return bool(commas) and all(map(_WITH_COMMA.fullmatch, texts))


def shows_decimals(values: Iterable[Any], mark: str, markers: Collection[str] = ()) -> bool:
    """Whether a column of numbers shows that a mark is that of decimals, and not of thousands.

    Args:
        values: the cells; those that are missing do not count.
        mark: a point or a comma.
        markers: texts that stand for a missing value, besides the usual ones.

    Example:
        >>> [shows_decimals(cells, ".") for cells in (["1.5", "2"], ["1.500", "2"], ["a", "1.5"])]
        [True, False, False]
    """
    texts = _texts(values, markers)
    return any(mark in text and not _THOUSANDS[mark].fullmatch(text) for text in texts) and all(
        re.fullmatch(rf"[+-]?\d*({re.escape(mark)}\d+)?([eE][+-]?\d+)?", text) for text in texts
    )


def may_have_thousands(
    values: Iterable[Any], mark: str, markers: Collection[str] = ()
) -> tuple[str, str] | None:
    """Two numbers of a column of which the first may have a separator of thousands.

    Args:
        values: the cells; those that are missing do not count.
        mark: a point or a comma.
        markers: texts that stand for a missing value, besides the usual ones.

    Returns:
        The first one with the mark, and the first one without it; empty if all have it. None if a
        cell shows that the mark is that of decimals, or no cell has it. If a zero is last after
        the mark, and another number has no mark, it is most likely one of thousands, because
        programs either write the zeros of decimals or leave them out: it is the first one then.

    Example:
        >>> may_have_thousands(["950", "1.234", "1.100"], "."), may_have_thousands(["1.1"], ".")
        (('1.100', '950'), None)
    """
    marked: list[str] = []
    others: list[str] = []
    for text in _each_text(values, markers):
        (marked if mark in text else others).append(text)
        if not (_THOUSANDS[mark] if mark in text else _SMALL).fullmatch(text):
            return None
    if not marked:
        return None
    likely = next((text for text in marked if others and text.endswith("0")), marked[0])
    return likely, others[0] if others else ""


def with_points(values: Sequence[Any], markers: Collection[str] = ()) -> Sequence[Any]:
    """Cells of a column with points in place of decimal commas, if all of them are such numbers.

    Example:
        >>> with_points(["1.234,5", "?"]), with_points(["1,5", "a"])
        (['1234.5', '?'], ['1,5', 'a'])
    """
    if not has_decimal_commas(values, ";", markers):
        return values
    return [
        value
        if not isinstance(value, str) or is_missing(value, markers)
        else value.replace(".", "").replace(",", ".")
        for value in values
    ]


def plain_numbers(
    values: Sequence[Any], commas: bool, where: str, markers: Collection[str] = ()
) -> Sequence[Any]:
    """Cells of a column as `float` reads them: true is 1, false is 0, and 1.234,5 is 1234.5.

    Cells that are no such numbers stay as they are.

    Args:
        values: the cells.
        commas: whether the table has decimal commas.
        where: the column, for messages.
        markers: texts that stand for a missing value, besides the usual ones.

    Raises:
        DataError: if the table has decimal commas, and points that may separate thousands.

    Example:
        >>> plain_numbers(["TRUE", "", "false"], False, "column smoker")
        [1.0, '', 0.0]
    """
    first = next(_each_text(values, markers), None)
    # Mostly the first text decides, and tables may have millions of them.
    is_boolean = first is not None and first.lower() in _BOOLEANS
    if not (is_boolean or commas):
        return values
    texts = _texts(values, markers)
    if is_boolean and all(text.lower() in _BOOLEANS for text in texts):
        return [
            _BOOLEANS.get(value.strip().lower(), value) if isinstance(value, str) else value
            for value in values
        ]
    if not commas:
        return values
    # A number such as 1.234,5 shows what points are in its column.
    shows_it = has_decimal_commas(values, ";", markers) and any(
        {*".,"} <= {*text} for text in texts
    )
    doubtful = next((text for text in texts if _THOUSANDS["."].fullmatch(text)), None)
    if doubtful is not None and not shows_it:
        raise DataError(
            f"{where}: {doubtful} may be a number of thousands or one with decimals, because "
            "others have decimal commas; write numbers without separators of thousands"
        )
    return with_points(values, markers)


def _texts(values: Iterable[Any], markers: Collection[str]) -> list[str]:
    """The cells that are texts, without those that are missing."""
    return list(_each_text(values, markers))


def _each_text(values: Iterable[Any], markers: Collection[str]) -> Iterator[str]:
    texts = (value.strip() for value in values if isinstance(value, str))
    return (text for text in texts if not is_missing(text, markers))
