"""Markdown tables with padded columns, which can also be read as plain text."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence

NO_VALUE = "–"


def spread(values: Sequence[float], digits: int) -> str:
    """Mean ± standard deviation (population form, as in the pictures); a dash without values."""
    if not values:
        return NO_VALUE
    text = f"{statistics.fmean(values):.{digits}f}"
    return f"{text} ± {statistics.pstdev(values):.{digits}f}" if len(values) > 1 else text


def markdown(lines: Sequence[Sequence[str]]) -> str:
    """A Markdown table; the first line holds the headings."""
    widths = [max(len(line[index]) for line in lines) for index in range(len(lines[0]))]
    rows = ["| " + " | ".join(map(str.ljust, line, widths)) + " |" for line in lines]
    rows.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return "\n".join(rows)


def mark_best(column: Mapping[str, Sequence[float]]) -> dict[str, str]:
    """The cells of a column in which larger is better: best bold, second best underlined.

    Values that are printed alike are marked alike.
    """
    means = {name: round(statistics.fmean(v), 1) for name, v in column.items() if v}
    ranks = sorted(set(means.values()), reverse=True)
    cells = {}
    for name, values in column.items():
        cell = spread(values, 1)
        # The second best of two methods is also the worst, and is not marked.
        if name in means and len(means) > 1 and means[name] == ranks[0]:
            cell = f"**{cell}**"
        elif name in means and len(means) > 2 and means[name] == ranks[1]:
            cell = f"<ins>{cell}</ins>"
        cells[name] = cell
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
