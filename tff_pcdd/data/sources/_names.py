"""Names of classes and sites, from folders, tables and arrays."""

from __future__ import annotations

import collections
import decimal
import re
import unicodedata
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any, TypeVar

import numpy as np

from tff_pcdd.data.checks import warn
from tff_pcdd.data.sources._tasks import MULTI_LABEL, REGRESSION, shape_hint
from tff_pcdd.errors import DataError
from tff_pcdd.text import composed

_T = TypeVar("_T")

# The number of a row, perhaps with its file.
Row = int | str

# What tables write for a missing value, and can mean nothing else.
MISSING = ("", "nan", "NaN", "<NA>")

# What pandas, R, SQL, spreadsheets, and the tables of UCI write for it. It may be a name, too.
MARKERS = frozenset(
    (
        *MISSING,
        *("NA", "N/A", "n/a", "#N/A", "#N/A N/A", "#NA", "NULL", "null", "None", "?", "-nan"),
        *("-NaN", "1.#IND", "-1.#IND", "1.#QNAN", "-1.#QNAN", "#DIV/0!", "#VALUE!", "#REF!"),
        *("#NULL!", "#NUM!", "#NAME?", ".", "\\N", "NaT"),
    )
)

# Apostrophes, quotation marks and dashes that programs put in place of those of a keyboard.
_TYPED = {
    ord(character): plain
    for plain, others in (("'", "‘’ʼ′`´"), ('"', "“”„″"), ("-", "‐‒–—−"))
    for character in others
}

# The most digits of a number; Python refuses to convert some thousand.
_DIGITS = 1000
_WHOLE = re.compile(rf"-?\d{{1,{_DIGITS}}}")

# A long number as spreadsheets show it.
_SHORTENED = re.compile(r"\d[.,]\d+[eE]\+\d+")

# Values of pandas for what is missing.
_PANDAS_MISSING = ("NAType", "NaTType")


def tidy(name: str, where: str) -> str:
    """A name in Unicode's composed form, without blanks at its ends and with single ones inside.

    Names without characters, or with some that cannot be shown, are refused, which says where.
    """
    text = composed(" ".join(name.split()))
    if not text:
        raise DataError(f"{where} is missing")
    if not text.isprintable():
        raise DataError(f"{where} {name!r:.80} has characters that cannot be shown")
    return text


def check_once(names: Sequence[str], what: str, where: str) -> None:
    """Refuses the first name that occurs twice; says what it names, and where."""
    counts = collections.Counter(names)
    for name in names:
        if counts[name] > 1:
            raise DataError(f"{where}: {what} {name!r:.80} occurs twice")


def numbered(values: Iterable[_T], rows: Sequence[Row] | None) -> Iterator[tuple[Row, _T]]:
    """Values with the numbers of their rows; without `rows`, they are counted from 0."""
    return enumerate(values) if rows is None else zip(rows, values, strict=True)


def as_names(
    values: Iterable[Any], what: str, where: str, rows: Sequence[Row] | None = None
) -> list[str]:
    """Labels or sites as names.

    Whole numbers are names too, whatever their type: 1, 1.0 and "1.0" are all "1". What is missing,
    a number with decimals or not a name is refused.

    Args:
        values: strings, bytes or numbers, [n].
        what: what a value is, for messages: "label" or "site".
        where: the table or array, for messages.
        rows: the number of each sample in messages; counted from 0 by default.
    """
    values = list(values)
    texts = numbered(as_texts(values, what, where, rows), rows)
    names = [tidy(text, f"{where}, row {row}: the {what}") for row, text in texts]
    _warn_of_lost_digits(values, names, what, where, rows)
    numbers = [number for name in names if (number := _number(name)) is not None]
    # Names such as "007" stay as they are, and so does "1.5" if another is no number.
    if len(numbers) < len(names) or not any("." in name for name in names):
        return names
    for row, number in numbered(numbers, rows):
        if number != number.to_integral_value():
            hint = f"; {REGRESSION}" if what == "label" else ""
            raise DataError(
                f"{where}, row {row}: the {what} {float(number):g} is not a whole number; a {what} "
                f"is a name or a whole number{hint}"
            )
    return [
        str(int(number)) if "." in name or "e" in name.casefold() else name
        for name, number in zip(names, numbers, strict=True)
    ]


def _warn_of_lost_digits(
    values: Sequence[Any], names: Sequence[str], what: str, where: str, rows: Sequence[Row] | None
) -> None:
    """Warns of numbers of which somebody has kept only the first digits."""
    lost = [
        index
        for index, (value, name) in enumerate(zip(values, names, strict=True))
        if _SHORTENED.fullmatch(name)
        or (isinstance(value, float | np.floating) and abs(float(value)) >= 2**53)
    ]
    if lost:
        first = lost[0] if rows is None else rows[lost[0]]
        others = f" (and {len(lost) - 1} others)" if len(lost) > 1 else ""
        warn(
            f"{where}, row {first}: the {what} {names[lost[0]]!r:.40}{others} has only the first "
            "digits of a long number, as spreadsheets and floating-point columns keep them; "
            f"several {what}s may have become one, so store them as text"
        )


def is_missing(
    value: Any, markers: Collection[str] = (), common: Collection[str] = MARKERS
) -> bool:
    """Whether a cell says that its value is missing.

    Args:
        value: the cell.
        markers: further texts that say so, such as "-9"; a number is one with any decimals.
        common: the texts that always say so.

    Example:
        >>> [is_missing(value, ["-9"]) for value in (None, " ? ", "NA", -9.0, "n", 0)]
        [True, True, True, True, False, False]
    """
    text = (_text(value) or "").strip()
    if text in common or text in markers:
        return True
    number = _number(text) if markers else None
    return number is not None and any(number == _number(marker) for marker in markers)


def as_texts(
    values: Iterable[Any], what: str, where: str, rows: Sequence[Row] | None = None
) -> list[str]:
    """Values as they are written, without blanks at their ends, such as the paths of files.

    Arguments are those of `as_names`. What is missing is refused.
    """
    texts = []
    for row, value in numbered(values, rows):
        if isinstance(value, list | tuple | set | dict | np.ndarray):
            hint = f"; {MULTI_LABEL}" if what == "label" else ""
            raise DataError(f"{where}, row {row}: the {what} is a {type(value).__name__}{hint}")
        text = (_text(value) or "").strip()
        if text in MISSING:
            raise DataError(f"{where}, row {row}: the {what} is missing")
        texts.append(text)
    return texts


def in_order(names: Iterable[str]) -> list[str]:
    """Different names in their order: that of numbers if all are whole numbers."""
    different = sorted(set(names))
    if all(_WHOLE.fullmatch(name) for name in different):
        return sorted(different, key=lambda name: (int(name), name))
    return different


def check_vector(values: Any, number: int, what: str, where: str) -> np.ndarray:
    """A value for each sample, [n], from an array of shape [n] or [n, 1] without masked values."""
    if np.ma.is_masked(values):
        raise DataError(f"{where}: {what}s are masked; leave these samples out")
    try:
        array = np.asarray(values)
    except ValueError:
        hint = f"; {MULTI_LABEL}" if what == "label" else ""
        raise DataError(f"{where}: the {what}s are lists of different lengths{hint}") from None
    if array.shape not in ((number,), (number, 1)):
        hint = shape_hint(array) if what == "label" else ""
        raise DataError(
            f"{where}: the {what}s have shape {array.shape}, not ({number},), one {what} for each "
            f"of the {number} samples{hint}"
        )
    return array.reshape(number)


def similar(names: Sequence[str]) -> list[tuple[str, str]]:
    """Pairs of names that most likely stand for the same.

    They differ only in upper and lower case, in blanks, underscores and dashes between words, in
    the form of a character, in leading zeros, or in the decimals of a whole number.

    Example:
        >>> similar(["site 1", "Site_01", "site 2"])
        [('site 1', 'Site_01')]
        >>> similar(["1", "A", "1.0"])
        [('1', '1.0')]
    """
    seen: dict[str, str] = {}
    pairs = []
    for name in names:
        other = seen.setdefault(_alike(name), name)
        if other != name:
            pairs.append((other, name))
    return pairs


def joined(names: Sequence[str]) -> dict[str, str]:
    """For each name the most frequent one that is similar to it; of several, the first one.

    Example:
        >>> joined(["B", "a", "b", "A", "b"])
        {'B': 'b', 'a': 'a', 'b': 'b', 'A': 'a'}
    """
    counts = collections.Counter(names)
    chosen: dict[str, str] = {}
    for name, _ in counts.most_common():
        chosen.setdefault(_alike(name), name)
    return {name: chosen[_alike(name)] for name in counts}


def _alike(name: str) -> str:
    """What similar names have in common."""
    text = unicodedata.normalize("NFKC", name).translate(_TYPED).casefold()
    text = re.sub(r"^(-?\d+)\.0+$", r"\1", text)
    text = re.sub(r"(?<=\w)[\s_-]+(?=\w)", " ", text)
    return re.sub(r"(?<![\d.])0+(?=\d)", "", text)


def _text(value: Any) -> str | None:
    """A cell as text; None if it is missing."""
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    if isinstance(value, str):
        return value
    if isinstance(value, float | np.floating):
        number = float(value)
        if not np.isfinite(number):
            return None
        # Python writes whole numbers from here on with an exponent.
        return f"{number:.1f}" if 1e16 <= abs(number) < 1e22 else repr(number)
    return None if value is None or type(value).__name__ in _PANDAS_MISSING else str(value)


def _number(name: str) -> decimal.Decimal | None:
    """A number with all its digits: patient numbers may have more than a float."""
    try:
        number = decimal.Decimal(name)
    except decimal.InvalidOperation:
        return None
    return number if number.is_finite() and abs(number.adjusted()) < _DIGITS else None
