"""The table of mutants and their outcomes, a csv file."""

from __future__ import annotations

import csv
import pathlib

from tests.mutation.operators import Mutant

COLUMNS = (
    "file",
    "digest",
    "number",
    "line",
    "operator",
    "before",
    "after",
    "outcome",
    "seconds",
    "by",
)

Row = dict[str, object]


def make_row(name: str, digest: str, number: int, mutant: Mutant) -> Row:
    """What is known of a mutant before it is run."""
    texts = (mutant.before.split("\n")[0], mutant.after.split("\n")[0])
    values = (name, digest, number, mutant.line, mutant.operator, *texts)
    return dict(zip(COLUMNS, values, strict=False))


def read(path: pathlib.Path) -> list[Row]:
    """The rows of a table, none if there is no table yet."""
    if not path.exists():
        return []
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def key_of(row: Row) -> tuple[str, ...]:
    """What identifies a mutant: the file's content and the mutant's number in it."""
    return tuple(str(row[column]) for column in COLUMNS[:3])


def write(path: pathlib.Path, rows: list[Row]) -> None:
    """Replaces the table by one with these rows."""
    partial = path.with_suffix(".partial")
    with open(partial, "w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS)
        writer.writeheader()
        writer.writerows(rows)
    partial.replace(path)


def summarize(rows: list[Row]) -> str:
    """A Markdown table of the scores by file; a timeout counts as killed."""
    lines = [
        "| file | mutants | killed | timeout | survived | score |",
        "|---|---|---|---|---|---|",
    ]
    for name in [*sorted({str(row["file"]) for row in rows}), ""]:
        chosen = [row["outcome"] for row in rows if not name or row["file"] == name]
        counts = [chosen.count(outcome) for outcome in ("killed", "timeout", "survived")]
        score = 100 * (1 - counts[2] / max(len(chosen), 1))
        cells = (f"`{name}`" if name else "all", len(chosen), *counts, f"{score:.1f} %")
        lines.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join(lines)
