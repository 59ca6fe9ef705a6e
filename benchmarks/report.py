"""The report: tables and targets as JSON, as a Markdown page and as a figure.

The frame of the page is templates/page.md; each section has its own text.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jinja2

from benchmarks import SECTIONS
from tff_pcdd import files
from tff_pcdd import tables as markdown

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# The last line of a page.
_DIGEST = "<!-- sha256 of the lines above: {} -->"


@dataclasses.dataclass(frozen=True)
class Target:
    """A bound on a measured ratio.

    Attributes:
        text: what is measured.
        value: the measured ratio; None if it could not be measured.
        limit: the bound.
        at_least: whether it is a lower bound; otherwise it is an upper bound.
    """

    text: str
    value: float | None
    limit: float
    at_least: bool = False

    @property
    def met(self) -> bool | None:
        """Whether the value is within the bound; None if there is no value."""
        if self.value is None:
            return None
        return self.value >= self.limit if self.at_least else self.value <= self.limit

    def to_json(self) -> dict[str, Any]:
        """The fields and whether the target is met, for JSON."""
        return {**dataclasses.asdict(self), "met": self.met}


@dataclasses.dataclass(frozen=True)
class Table:
    """Rows of measurements.

    Attributes:
        title: heading.
        columns: maps the heading of each column to the key of its values in the rows. A column
            without a heading is left out if it has no values. Further values in the rows are only
            written to the JSON file.
        rows: the measurements.
    """

    title: str
    columns: Mapping[str, str]
    rows: Sequence[Mapping[str, Any]]


@dataclasses.dataclass(frozen=True)
class Section:
    """The measurements of a section.

    Attributes:
        title: heading.
        text: what was measured and how.
        tables: the measured values.
        targets: bounds on the measured ratios.
        picture: a bar chart of the section: its title, the bars by label, and the position of a
            reference line (None for no line).
        figures: further pictures, by the names of their files; their suptitles describe them.
    """

    title: str
    text: str
    tables: Sequence[Table]
    targets: Sequence[Target] = ()
    picture: tuple[str, Mapping[str, float], float | None] | None = None
    figures: Mapping[str, Figure] = dataclasses.field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """The section as values that JSON can represent."""
        return {
            "title": self.title,
            "text": self.text,
            "tables": [{"title": t.title, "rows": list(t.rows)} for t in self.tables],
            "targets": [target.to_json() for target in self.targets],
        }


def write(
    output_dir: Path,
    machine: Mapping[str, Any],
    settings: Mapping[str, Any],
    sections: Mapping[str, Section],
) -> str:
    """Writes benchmark.json, and benchmark.md with its pictures; returns the Markdown page."""
    files.make_directory(output_dir)
    values = {
        "machine": dict(machine),
        "settings": dict(settings),
        "sections": {name: section.to_json() for name, section in sections.items()},
    }
    files.write_text(output_dir / "benchmark.json", json.dumps(values, indent=2) + "\n")
    return write_page(output_dir / "benchmark.md", machine, settings, sections)


def write_page(
    path: Path,
    machine: Mapping[str, Any],
    settings: Mapping[str, Any],
    sections: Mapping[str, Section],
) -> str:
    """Writes the Markdown page, and its pictures to a folder `images` beside it; returns it."""
    from tff_pcdd.training import plots

    page = to_markdown(machine, settings, sections)
    files.write_text(path, page)
    pictures = {"benchmark.png": draw(sections)}
    for section in sections.values():
        pictures.update(section.figures)
    files.make_directory(path.parent / "images")
    for name, figure in pictures.items():
        plots.save(figure, path.parent / "images" / name)
    return page


def to_markdown(
    machine, settings, sections: Mapping[str, Section], template: str = "page.md"
) -> str:
    """The report as a Markdown page, whose last line is the digest of the others."""
    targets = [target for section in sections.values() for target in section.targets]
    rows = [
        {
            "text": target.text,
            "limit": f"{'≥' if target.at_least else '≤'} {target.limit:g}",
            # One more digit than in tables, so that a value next to its bound is not rounded to it.
            "value": None if target.value is None else f"{target.value:#.4g}",
            "met": {True: "met", False: "**not met**", None: "not measured"}[target.met],
        }
        for target in targets
    ]
    columns = {"target": "text", "bound": "limit", "measured": "value", "": "met"}
    # Markdown, not HTML: nothing is escaped.
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent / "templates"),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
    )
    page = environment.get_template(template).render(
        machine=machine,
        settings=settings,
        sections=sections,
        names=list(SECTIONS),
        pictures=[section.picture[0] for section in sections.values() if section.picture],
        targets=_table(columns, rows) if rows else "",
        table=lambda table: _table(table.columns, table.rows),
    )
    page = f"{page.rstrip()}\n\n"
    return f"{page}{_DIGEST.format(digest_of(page))}\n"


def digest_of(page: str) -> str:
    """The digest of a page without its last line, for `is_unchanged`."""
    return hashlib.sha256(page.encode()).hexdigest()


def is_unchanged(page: str) -> bool:
    """Whether a page is as `to_markdown` wrote it."""
    text, found, last = page.rstrip("\n").rpartition("\n")
    return found != "" and last == _DIGEST.format(digest_of(text + found))


def _table(columns: Mapping[str, str], rows) -> str:
    columns = {h: key for h, key in columns.items() if h or any(key in row for row in rows)}
    cells = [[_cell(row.get(key)) for key in columns.values()] for row in rows]
    return markdown.table([[*columns], *cells])


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, int) or (isinstance(value, float) and abs(value) >= 1000):
        return f"{value:,.0f}"
    return f"{value:#.3g}".rstrip(".") if isinstance(value, float) else str(value)


def draw(sections: Mapping[str, Section]) -> Figure:
    """A bar chart for each section that has a picture."""
    # Not at the top: sections and the processes that they start need no pictures.
    from matplotlib.figure import Figure

    pictures = [section.picture for section in sections.values() if section.picture]
    # Each panel is as high as its bars need.
    heights = [0.8 + 0.25 * len(bars) for _, bars, _ in pictures] or [1.0]
    figure = Figure(figsize=(8, sum(heights)), layout="constrained")
    panels = figure.subplots(len(heights), 1, squeeze=False, height_ratios=heights)[:, 0]
    for axes, (title, bars, line) in zip(panels, pictures, strict=False):
        axes.barh(list(bars), list(bars.values()), color="tab:blue")
        axes.invert_yaxis()
        if line is not None:
            axes.axvline(line, color="black", linewidth=1)
        labels = [_cell(float(value)) for value in bars.values()]
        # A background, so that the line does not cross the labels.
        box = {"facecolor": "white", "edgecolor": "none", "pad": 0.5}
        axes.bar_label(axes.containers[0], labels, padding=3, bbox=box)
        axes.margins(x=0.15, y=0.4 / len(bars))
        axes.set_title(title, fontsize=10)
        axes.grid(axis="x", alpha=0.3)
        axes.set_axisbelow(True)
    return figure
