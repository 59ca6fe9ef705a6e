"""What a method gains over another one, on all federations side by side."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import NamedTuple

from tff_pcdd import markdown
from tff_pcdd.errors import DamagedFileError
from tff_pcdd.publication.published import NOTES, Notes, Published
from tff_pcdd.publication.rows import Row
from tff_pcdd.studies import tables
from tff_pcdd.studies.columns import headings

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
        of, to: the two methods, METHOD or METHOD/HEAD.
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
    return [_LEGEND, markdown.table(lines)] if lines[1:] else []


def _pairs(one: Published, line: Difference) -> list[float]:
    """The differences on a federation, by seed; empty if it lacks one of the methods."""
    of, to = (Row.parse(f"{one.name}/{method}") for method in (line.of, line.to))
    return tables.differences(of.values(one, line.measure), to.values(one, line.other))


def _cell(pairs: Sequence[float]) -> str:
    text = tables.spread(pairs, 1, "+")
    if len(pairs) < 2 or abs(statistics.fmean(pairs)) <= statistics.stdev(pairs):
        return text
    if all(pair > 0 for pair in pairs):
        return f"**{text}**"
    return f"*{text}*" if all(pair < 0 for pair in pairs) else text
