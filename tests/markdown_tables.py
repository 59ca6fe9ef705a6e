"""The cells of Markdown tables, however they are padded."""

from __future__ import annotations

import re


def table_rows(text: str) -> list[list[str]]:
    r"""The lines of all tables in a text without the rules below headings; `\|` stays as it is."""
    lines = (re.split(r"(?<!\\)\|", line)[1:-1] for line in text.splitlines() if line[:1] == "|")
    cells = ([cell.strip() for cell in line] for line in lines)
    return [line for line in cells if not all(re.fullmatch(":?-+:?", cell) for cell in line)]
