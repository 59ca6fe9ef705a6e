"""Tables of cases in docs/quality.md: what was brought, what is expected, and what came out."""

from __future__ import annotations

import pathlib
from collections.abc import Iterable, Sequence

from tff_pcdd import tables

PAGE = pathlib.Path(__file__).parents[1] / "docs" / "quality.md"


def check_page(head: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Checks that the page has this table.

    Args:
        head: the names of the columns.
        rows: their cells.

    Raises:
        AssertionError: it has another one, or none; says what it needs.
    """
    cells = [[tables.escape(cell) for cell in row] for row in rows]
    lines = [f"| {' | '.join(row)} |" for row in (head, *cells)]
    lines.insert(1, "|" + "---|" * len(head))
    table = "\n".join(lines)
    assert table in PAGE.read_text(encoding="utf-8"), f"the page needs\n{table}"


def check_outcome(what: str, expected: str, got: str) -> None:
    """Checks that a case came out as expected.

    Args:
        what: the case, for the message.
        expected: "refused", or what is seen; with "; warned", if warnings are expected too.
        got: the same, with the reason or the warnings behind it.
    """
    seen, _, warning = expected.partition("; warned")
    found, _, text = got.partition("; warned: ")
    if seen == "refused":
        assert found.startswith("refused: "), f"{what}: {got}"
        return
    assert found == seen, f"{what}: {got} instead of {expected}"
    assert bool(text) is ("; warned" in expected), f"{what}: {got}"
    assert not warning
