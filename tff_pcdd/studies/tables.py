"""Markdown tables with padded columns, which can also be read as plain text."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

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
