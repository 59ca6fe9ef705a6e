"""What papers claim, and what published results show.

All of it is in notes.toml. `[differences]` has the lines of the first table, see `differences`.
Below it, `[rows.NAME]` has a line for each row of a table, `"description" = "FOLDER/METHOD"`, so
that a row can be of any published sweep, and `[claims]` the paragraph below the table of the same
name. With `FOLDER/METHOD/HEAD`, GA is that of another head of the global model, which the same runs
have measured. In `[differences]`, `METHOD: SETTINGS` stands for the runs of further_runs.csv with
these settings.
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from publication import federation_tables, provenance
from publication.published import FINAL, NOTES, Notes, Published
from tff_pcdd import tables
from tff_pcdd.errors import DamagedFileError
from tff_pcdd.measures import headings
from tff_pcdd.tables import read_number

_INTRO = """\
What the papers of three methods claim, beside the results of the [comparison]({main}), which
explains its columns. Terms are in the [glossary](../glossary.md)."""

_ROWS = """\
The tables below are rows of the papers' ablations. Rows with chosen settings of their own were
tuned by the rule of the comparison, and all were trained with the same seeds. GA, 2nd half: GA
averaged over the evaluated rounds of the second half, which varies less than that after the last
one. Difference: to the first row, for runs with the same seed, in percentage points; in brackets,
for how many seeds it is positive."""

_COMPUTED = """\
Each row whose settings, or whose processor, differ from those of the comparison was tuned in a
sweep of its own:"""

# The columns of the tables: of the global model, with the difference to the first row; of its
# accuracies on groups of classes, if classes differ in size; and of the personal models.
_GA = "ga_final"
_COMPARED = headings(_GA, "ga_second_half")
_GROUPS = headings("ga_many_final", "ga_medium_final", "ga_few_final")
_PERSONAL = headings("pa_before_final", "pa_before_masked_final", "pa_final")


def federations(published: Sequence[Published], notes: Notes) -> list[Published]:
    """The sweeps that are federations of the comparison, and not only rows of a table."""
    return [one for one in published if one.name not in _ablations(notes)]


def missing(notes: Notes) -> list[str]:
    """A line for each table of rows that lacks its paragraph."""
    return [f"claims.{name}" for name in notes.rows if not notes.claims.get(name, "").strip()]


def document(published: Sequence[Published], notes: Notes, main: str) -> str:
    """The text of the page, which is beside the folders of the results.

    Args:
        published: all results.
        notes: what people have written.
        main: the path of the page about all federations, from this one.

    Raises:
        DamagedFileError: a row names a method, or a head, that its sweep lacks.
    """
    parts = ["# What the papers claim, and what was seen", _INTRO.format(main=main)]
    parts += section(federations(published, notes), notes)
    parts += notes.text("above_claims")
    names = dict.fromkeys([*notes.claims, *notes.rows])
    if names:
        parts.append(_ROWS)
    for name in names:
        parts.append(f"## {name}")
        if rows := notes.rows.get(name):
            parts.append(_table(name, rows, published))
        parts.append(notes.claims.get(name, "").strip() or "Not described yet.")
    ablations = _ablations(notes)
    if done := [one for one in published if one.name in ablations]:
        parts += ["## How these rows were computed", _COMPUTED]
        parts.append("\n".join(f"- {provenance.in_short(one)}" for one in done))
    return "\n\n".join(parts) + "\n"


def _ablations(notes: Notes) -> set[str]:
    """The folders of sweeps that are only rows of a table."""
    named = {Row.parse(text).folder for rows in notes.rows.values() for text in rows.values()}
    return named - {*notes.federations}


def _table(name: str, rows: Mapping[str, str], published: Sequence[Published]) -> str:
    """The rows of a method's table, in the order of the notes."""
    sweeps = {one.name: one for one in published}
    parsed = {text: Row.parse(place) for text, place in rows.items()}
    found = {text: row for text, row in parsed.items() if row.folder in sweeps}
    for row in found.values():
        _check(name, row, sweeps[row.folder])
    groups = {
        column: heading
        for column, heading in _GROUPS.items()
        if any(row.values(sweeps[row.folder], column) for row in found.values())
    }
    others = {**groups, **_PERSONAL}
    headings = [heading for column in _COMPARED.values() for heading in (column, "difference")]
    lines = [["row", *headings, *others.values(), "seeds", "chosen settings", "results"]]
    for text, row in parsed.items():
        if text not in found:
            blank = [""] * (len(lines[0]) - 3)
            lines.append([text, "**not run yet**", *blank, row.folder])
            continue
        sweep = sweeps[row.folder]
        cells = []
        for column in (*_COMPARED, *others):
            cells.append(tables.spread([*row.values(sweep, column).values()], 1))
            if column in _COMPARED:
                cells.append(_difference(row, next(iter(found.values())), sweeps, column))
        runs = [result for result in sweep.results if result.method == row.method]
        lost = sum(run.diverged for run in runs)
        cells.append(tables.count(len(runs) - lost, len(runs), lost))
        cells.append(federation_tables.chosen(sweep, row.method))
        lines.append([text, *cells, f"[{row.folder}]({row.folder}/{FINAL})"])
    return tables.table(lines)


def _check(name: str, row: Row, sweep: Published) -> None:
    """Refuses a row whose sweep lacks its method or its head."""
    if row.method not in sweep.methods or (row.head and not row.values(sweep, _GA)):
        lacking = f"a head {row.head} of {row.method}" if row.head else row.method
        reason = f"rows.{name}: {row.folder} lacks {lacking}"
        raise DamagedFileError(f"{NOTES} cannot be used ({reason})")


def _difference(row: Row, first: Row, sweeps: Mapping[str, Published], column: str) -> str:
    """The difference of a column to the first row of the table, for runs with the same data."""
    if row == first:
        return tables.NO_VALUE
    sweep, first_sweep = sweeps[row.folder], sweeps[first.folder]
    others = first.values(first_sweep, column)
    same = {seed: others[seed] for seed in _common_data(sweep, first_sweep) if seed in others}
    pairs = tables.differences(row.values(sweep, column), same)
    ahead = f" ({sum(pair > 0 for pair in pairs)} of {len(pairs)})" if pairs else ""
    return tables.spread(pairs, 1, "+") + ahead


def _common_data(one: Published, other: Published) -> list[str]:
    """The seeds with which two sweeps have the same data, divided in the same way."""
    data, others = (published.record["data_sha256"] for published in (one, other))
    return [seed for seed in data if data[seed] and data[seed] == others.get(seed)]


# Rows of the tables about claims: where their results are.


class Row(NamedTuple):
    """Where the results of a row are.

    Attributes:
        folder: the folder of the published sweep.
        method: the method in it.
        head: the head of the global model that GA is of; empty for the method's own.
    """

    folder: str
    method: str
    head: str

    @classmethod
    def parse(cls, text: str) -> Row:
        """The row that FOLDER/METHOD or FOLDER/METHOD/HEAD names."""
        folder, method, *heads = text.split("/")
        return cls(folder, method, "".join(heads))

    def values(self, sweep: Published, column: str) -> dict[str, float]:
        """A column by seed, without runs that diverged.

        Of another head, there are only accuracies of the global model after the last round.
        """
        if self.head:
            of_head = re.fullmatch("ga(_.*final)", column)
            column = f"ga_{self.head}{of_head[1]}" if of_head else ""
        return sweep.by_seed(self.method, column)


# What a method gains over another one, on all federations side by side.


# The accuracies that can be compared. One of each pair is that of the first method, the other one
# that of the second.
_MEASURES = {
    **headings("ga_final", "ga_second_half", "ga_few_final", "pa_before_final", "pa_final"),
    **headings("pa_before_masked_final"),
}

_LEGEND = """\
Differences for runs with the same seed, in percentage points, mean ± sample standard deviation over
seeds. **Bold**: larger than its deviation, and positive with all seeds. *Italic*: the same, but
negative. With three seeds, either may be by chance."""


class Difference(NamedTuple):
    """A line of the table.

    Attributes:
        claim: what is compared, in words.
        of, to: the two methods, METHOD or METHOD/HEAD; of further runs, METHOD: SETTINGS.
        measure: the accuracy of `of`.
        other: the accuracy of `to`.
        published: what the paper has, in words.
    """

    claim: str
    of: str
    to: str
    measure: str
    other: str
    published: str


def parse(notes: Notes) -> list[Difference]:
    """The lines that `[differences]` of the notes describes.

    Raises:
        DamagedFileError: a line lacks an entry, or names an unknown measure.
    """
    found: list[Difference] = []
    for claim, entries in notes.differences.items():
        try:
            of, to, measures = (entries[name] for name in ("of", "to", "measures"))
        except KeyError as error:
            raise _unusable(claim, f"there is no {error.args[0]}") from None
        for text in measures.split(","):
            measure, _, other = text.strip().partition("/")
            other = other or measure
            for name in (measure, other):
                if name not in _MEASURES:
                    raise _unusable(claim, f"{name} is not one of {', '.join(_MEASURES)}")
            published = (
                entries.get("published", "") if not found or found[-1].claim != claim else ""
            )
            found.append(Difference(claim, of, to, measure, other, published))
    return found


def _unusable(claim: str, reason: str) -> DamagedFileError:
    return DamagedFileError(f"{NOTES} cannot be used (differences.{claim}: {reason})")


def section(federations: Sequence[Published], notes: Notes) -> list[str]:
    """The legend and the table, with a column for each federation; empty without any line."""
    lines = [["claim", "published", "measure", *(one.title for one in federations)]]
    for line in parse(notes):
        measure = _MEASURES[line.measure]
        if line.other != line.measure:
            measure += f", to {_MEASURES[line.other]}"
        cells = [_cell(_pairs(one, line)) for one in federations]
        lines.append([line.claim, line.published, measure, *cells])
    return [_LEGEND, tables.table(lines)] if lines[1:] else []


def _pairs(one: Published, line: Difference) -> list[float]:
    """The differences on a federation, by seed; empty if it lacks one of the methods."""
    own, others = _values(one, line.of, line.measure), _values(one, line.to, line.other)
    return tables.differences(own, others)


def _values(one: Published, method: str, column: str) -> dict[str, float]:
    method, _, settings = method.partition(": ")
    if settings:
        return {
            row["seed"]: value
            for row in one.further
            if (row["method"], row["settings"]) == (method, settings)
            and (value := read_number(row.get(column, ""))) is not None
        }
    return Row.parse(f"{one.name}/{method}").values(one, column)


def _cell(pairs: Sequence[float]) -> str:
    text = tables.spread(pairs, 1, "+")
    if len(pairs) < 2 or abs(statistics.fmean(pairs)) <= statistics.stdev(pairs):
        return text
    if all(pair > 0 for pair in pairs):
        return f"**{text}**"
    return f"*{text}*" if all(pair < 0 for pair in pairs) else text
