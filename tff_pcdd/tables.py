"""The cells of tables: values and differences over seeds, marks of the best, counts of runs."""

from __future__ import annotations

import re
import statistics
import textwrap
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from tff_pcdd import measures
from tff_pcdd.text import NO_VALUE, cut, signed

# Characters in a line of what programs print.
WIDTH = 80
# Accuracies in percent that differ by less are equal.
_ROUNDING = 1e-6

_Key = TypeVar("_Key")
_Value = TypeVar("_Value")


def deviation(values: Sequence[float]) -> float:
    """The sample standard deviation, with n - 1 in the denominator; 0 for a single value."""
    return float(np.std(values, ddof=1)) if len(values) > 1 else 0.0


def mean(values: Collection[float]) -> float | None:
    """The mean of values; None without any."""
    return statistics.fmean(values) if values else None


def spread(values: Sequence[float], digits: int, sign: str = "") -> str:
    """Mean ± sample standard deviation; no deviation of one value, and a dash without values.

    Args:
        values: one for each seed.
        digits: number of digits after the decimal point.
        sign: "+" if positive means have a sign too; what is 0 when rounded has none.

    Example:
        >>> spread([-0.1, 0.08], 1), spread([0.01], 1, "+"), spread([1.0], 1, "+")
        ('0.0 ± 0.1', '0.0', '+1.0')
    """
    if not values:
        return NO_VALUE
    text = f"{statistics.fmean(values):{sign}.{digits}f}"
    if float(text) == 0:
        text = f"{0:.{digits}f}"
    return f"{text} ± {deviation(values):.{digits}f}" if len(values) > 1 else text


def rounds(values: Sequence[float]) -> str:
    """Numbers of rounds as `spread`, with a digit after the point if their mean is not whole.

    Example:
        >>> rounds([2, 3]), rounds([3, 3]), rounds([4])
        ('2.5 ± 0.7', '3 ± 0', '4')
    """
    return spread(values, 1 if values and statistics.fmean(values) % 1 else 0)


def gains(values: Sequence[float]) -> str:
    """Differences in points as `spread`, with the signs that they have in sentences.

    Example:
        >>> gains([-1.0, -3.0]), gains([-0.01])
        ('−2.0 ± 1.4', '0.0')
    """
    if not values:
        return NO_VALUE
    _, between, deviated = spread(values, 1).partition(" ± ")
    return f"{signed(statistics.fmean(values))}{between}{deviated}"


def cell(key: str, values: Sequence[float]) -> str:
    """Mean ± sample standard deviation of a value of summary.json.

    Accuracies and metrics have one digit after the point, as in `spread`; other measures, whose
    size is not known, have three significant digits.
    """
    if not is_own(key) or not values:
        return spread(values, 1)
    text = f"{statistics.fmean(values):.3g}"
    return f"{text} ± {deviation(values):.2g}" if len(values) > 1 else text


def is_own(key: str) -> bool:
    """Whether a value of summary.json is a measure of a user's, of which none is the best."""
    return measures.of_key(key).group == measures.OWN


def percent(value: float | None) -> str:
    """An accuracy as text; a dash if it was not measured, or there were no samples."""
    return NO_VALUE if value is None or value != value else f"{value:.2f}"


def differences(own: Mapping[Any, float], others: Mapping[Any, float]) -> list[float]:
    """By how much each value exceeds the other one of its seed, for the seeds that both have."""
    return [value - others[seed] for seed, value in own.items() if seed in others]


def grouped(pairs: Iterable[tuple[_Key, _Value]]) -> dict[_Key, list[_Value]]:
    """The values of each key, both in the order of the pairs.

    Example:
        >>> grouped([("a", 1), ("b", 2), ("a", 3)])
        {'a': [1, 3], 'b': [2]}
    """
    groups: dict[_Key, list[_Value]] = {}
    for key, value in pairs:
        groups.setdefault(key, []).append(value)
    return groups


def is_equal(own: float, other: float) -> bool:
    """Whether two accuracies, in percent, are the same but for rounding."""
    return abs(own - other) < _ROUNDING


def mark_best(
    column: Mapping[str, Sequence[float]], unranked: Collection[str] = ()
) -> dict[str, str]:
    """The cells of a column in which larger is better: best bold, second best underlined.

    If several means that are printed alike share a rank, none of them has the mark of that rank.

    Args:
        unranked: rows that are not compared with the others, such as baselines.
    """
    means = {
        name: round(statistics.fmean(values), 1)
        for name, values in column.items()
        if values and name not in unranked
    }
    ranking = sorted(means.values(), reverse=True)
    # The second best of two is also the worst, and is not marked.
    marks = {0: "**{}**", 1: "<ins>{}</ins>"} if len(means) > 2 else {0: "**{}**"}
    cells = {name: spread(values, 1) for name, values in column.items()}
    for name, mean in means.items():
        if len(means) > 1 and ranking.count(mean) == 1 and ranking.index(mean) in marks:
            cells[name] = marks[ranking.index(mean)].format(cells[name])
    return cells


def count(usable: int, planned: int, diverged: int) -> str:
    """The number of runs with results, of how many if some lack them, and how many diverged."""
    text = str(usable) if usable == planned else f"{usable} of {planned}"
    return f"{text}, {diverged} diverged" if diverged else text


def number(values: Iterable[float], form: str, reduce: Callable = statistics.fmean) -> str:
    """Values as one formatted number, their mean by default; a dash without values."""
    values = list(values)
    if not values:
        return NO_VALUE
    return format(round(reduce(values)) if form.endswith("d") else reduce(values), form)


# Markdown that can also be read as plain text, for the files that runs write for people.


def table(lines: Sequence[Sequence[str]], right: Collection[int] = ()) -> str:
    r"""A table with padded columns.

    Args:
        lines: the cells of each line, as many in each; the first line holds the headings. Text that
            is not the program's own has to go through `escape`.
        right: columns of numbers that have the same number of digits after the point.

    Example:
        >>> print(table([["client", "accuracy"], ["a", "9.50"], [escape("b|c"), "10.25"]], {1}))
        | client | accuracy |
        |--------|---------:|
        | a      |     9.50 |
        | b\|c   |    10.25 |
    """
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    rows = [
        [
            cell.rjust(width) if index in right else cell.ljust(width)
            for index, (cell, width) in enumerate(zip(line, widths, strict=True))
        ]
        for line in lines
    ]
    rules = [
        "-" * (width + 1) + (":" if index in right else "-") for index, width in enumerate(widths)
    ]
    heading, *body = (f"| {' | '.join(row)} |" for row in rows)
    return "\n".join([heading, f"|{'|'.join(rules)}|", *body])


def narrow(lines: Sequence[Sequence[str]], dropped: Sequence[int] = (), width: int = WIDTH) -> str:
    """A table for a terminal: columns are left out, and then cells are cut, until it fits.

    Args:
        lines: as for `table`.
        dropped: the columns that may be left out, the least important first.
        width: characters in a line.

    Example:
        >>> print(narrow([["method", "GA", "PA"], ["fedavg", "93.0", "99.0"]], [2], width=20))
        | method | GA   |
        |--------|------|
        | fedavg | 93.0 |
    """
    left_out: set[int] = set()
    kept = [*lines]
    for column in (None, *dropped):
        left_out |= set() if column is None else {column}
        kept = [[c for i, c in enumerate(line) if i not in left_out] for line in lines]
        widths = [max(map(len, column)) for column in zip(*kept, strict=True)]
        if (excess := sum(widths) + 3 * len(widths) + 1 - width) <= 0:
            return table(kept)
    # The longest cells, such as names and settings, are cut.
    widest = widths.index(max(widths))
    most = max(8, widths[widest] - excess)
    return table(
        [
            [cut(cell, most) if index == widest else cell for index, cell in enumerate(line)]
            for line in kept
        ]
    )


def wrapped(text: str, indent: str = "") -> str:
    """A text in lines that fit a terminal; further lines are indented, and no word is broken."""
    return textwrap.fill(
        text, WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )


def escape(text: str) -> str:
    r"""A text of others, such as a name, that is shown as it is.

    It neither ends its cell or line of a table nor becomes HTML, a link or a picture.

    Example:
        >>> print(escape("<b>[x](y)|\\[z]"))
        &lt;b>\[x](y)\|\\\[z]
    """
    text = re.sub(r"\\(?=[\\\[|]|$)", r"\\\\", " ".join(text.split()))
    return text.replace("|", "\\|").replace("[", "\\[").replace("<", "&lt;")


# Texts of others in csv files. Spreadsheets take a cell that begins with one of these for a
# formula, which may run programs, unless an apostrophe is before it.
_FORMULA = re.compile(r"'*[=+\-@\t\r]")


def inert(text: str) -> str:
    """A text for a cell of a csv file that no spreadsheet takes for a formula.

    Example:
        >>> inert("=1+1"), inert("-1.5"), inert("a")
        ("'=1+1", '-1.5', 'a')
    """
    try:
        float(text)
    except ValueError:
        return f"'{text}" if _FORMULA.match(text) else text
    return text


def original(text: str) -> str:
    """The text that `inert` was given.

    Example:
        >>> original("'=1+1"), original("'tis")
        ('=1+1', "'tis")
    """
    return text[1:] if text.startswith("'") and _FORMULA.match(text) else text


# No accuracy, time or number of bytes is as large.
LARGEST = 10**18


def read_number(cell: str) -> float | None:
    """A number; None for an empty cell, NaN, infinities and what is far too large.

    Raises:
        ValueError: the cell is not a number.
    """
    if not cell:
        return None
    value = float(cell)
    return value if abs(value) < LARGEST else None


def read_count(cell: str) -> int:
    """A number of samples; 0 for an empty cell.

    Raises:
        ValueError: the cell is not such a number.
    """
    value = int(cell or 0)
    if not 0 <= value < LARGEST:
        raise ValueError(f"{value} is not a number of samples")
    return value


# The method with which the others are compared.
BASELINE = "fedavg"


def label(method: str, has_global_model: bool) -> str:
    """The name of a method in tables; † if it has no global model.

    Example:
        >>> label("fedavg", True), label("fedper", False)
        ('fedavg', 'fedper †')
    """
    return method if has_global_model else f"{method} †"
