"""Markdown that can also be read as plain text, for the files that runs write for people."""

from __future__ import annotations

from collections.abc import Collection, Sequence


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


def escape(text: str) -> str:
    """A text of others, such as a name, that does not end its cell or line of a table."""
    return " ".join(text.split()).replace("|", "\\|")
