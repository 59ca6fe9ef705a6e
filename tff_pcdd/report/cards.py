"""Model cards in a directory, cut into headings, paragraphs and tables."""

from __future__ import annotations

import dataclasses
import itertools
import re
from collections.abc import Iterator, Sequence
from typing import Any

from tff_pcdd.results.reading import Directory
from tff_pcdd.text import name_of

_FILE = "model_card.md"

# Deep enough for an export inside a run's directory: exported/personal/CLIENT/1/model_card.md
_DEPTH = 6
_MOST = 50
_MAX_CHARACTERS = 200_000


@dataclasses.dataclass(frozen=True)
class Card:
    """A model card.

    Attributes:
        title: its first heading.
        place: its folder, below the directory.
        blocks: pairs of a kind and its content: "heading" and "text" have a string, "table" has
            lines of cells, the headings first.
    """

    title: str
    place: str
    blocks: Sequence[tuple[str, Any]]


def read(directory: Directory) -> tuple[list[Card], int]:
    """Reads the model cards below a directory; also says how many there are."""
    names = [
        directory.place(folder / _FILE)
        for depth in range(_DEPTH)
        for folder in directory.folders(f"{'*/' * depth}{_FILE}")
    ]
    found = []
    for name in sorted(names)[:_MOST]:
        text = directory.attempt(name, directory.text, name)
        if text is not None:
            blocks = [*parse(text[:_MAX_CHARACTERS])]
            title = blocks[0][1] if blocks and blocks[0][0] == "heading" else name
            found.append(Card(name_of(title), name, blocks[1:]))
    return found, len(names)


def parse(text: str) -> Iterator[tuple[str, Any]]:
    """Cuts the Markdown of model cards into blocks; everything else in it stays plain text.

    Example:
        >>> [*parse("# A model\\n\\nOf\\ntwo lines.\\n\\n| a | b |\\n| --- | --- |\\n| 1 | 2 |\\n")]
        [('heading', 'A model'), ('text', 'Of two lines.'), ('table', [['a', 'b'], ['1', '2']])]
    """
    for filled, lines in itertools.groupby(text.splitlines(), key=lambda line: bool(line.strip())):
        if not filled:
            continue
        for is_row, group in itertools.groupby(lines, key=lambda line: line.startswith("|")):
            block = [*group]
            if is_row:
                cells = [_cells(line) for line in block]
                yield "table", [line for line in cells if not _is_rule(line)]
            elif block[0].startswith("#"):
                yield "heading", block[0].lstrip("#").strip()
            else:
                yield "text", " ".join(line.strip() for line in block)


def _cells(line: str) -> list[str]:
    inner = line.strip().removeprefix("|").removesuffix("|")
    return [cell.strip().replace("\\|", "|") for cell in re.split(r"(?<!\\)\|", inner)]


def _is_rule(cells: Sequence[str]) -> bool:
    return all(re.fullmatch(":?-+:?", cell) for cell in cells)
