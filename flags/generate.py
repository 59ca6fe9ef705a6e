"""Writes the published figures into the flagfiles and into docs/reproduction.md.

    python flags/generate.py

The figures are in flags/published/*.csv and are never typed anywhere else. A line such as

    # [published | fedgela_table2 | CIFAR10 | Dir(0.1) 10 of 10]

in a flagfile starts a comment that this program fills in, up to the line `# [end of published]`.
The fields are the table, the data set, the setting and, optionally, the methods, separated by
semicolons; data sets, settings and methods may contain `*`. In the page the marks are

    <!-- published | fedgela_table2 | methods -->
    <!-- end of published -->

with the layout: `methods` (a row for each method), `settings` (a row for each setting) or `list` (a
row for each method and setting). A further field restricts the data sets.

    <!-- measured | table5_p50c2_simple_cnn -->
    <!-- end of measured -->

become a table of the results in docs/reproduction/table5_p50c2_simple_cnn/comparison.csv, as
`tasks.compare` wrote it, beside the figures that the flagfile of that name in flags/reproduction
selects.
"""

from __future__ import annotations

import csv
import dataclasses
import decimal
import fnmatch
import pathlib
import re
import textwrap
from collections.abc import Iterable, Sequence

FLAGS = pathlib.Path(__file__).resolve().parent
PAGE = FLAGS.parent / "docs" / "reproduction.md"

# Printed as fractions of 1 by FedLoGe.
_FRACTIONS = {"GM", "PM", "many", "med", "few", "all", "PM (avg)", "PM (macro)", "PM (weighted)"}
_PERCENT = {*_FRACTIONS, "PA", "GA", "accuracy"}

_COMMENT = re.compile(
    r"^# \[published \|(?P<fields>[^\n]*)\]\n(?P<body>.*?)^# \[end of published\]\n",
    re.MULTILINE | re.DOTALL,
)
_TABLE = re.compile(
    r"^<!-- published \|(?P<fields>[^\n]*)-->\n(?P<body>.*?)^<!-- end of published -->\n",
    re.MULTILINE | re.DOTALL,
)
_MEASURED = re.compile(
    r"^<!-- measured \|(?P<fields>[^\n]*)-->\n(?P<body>.*?)^<!-- end of measured -->\n",
    re.MULTILINE | re.DOTALL,
)

# The accuracies of comparison.csv that tables of what was measured show, with their headings. This
# program runs without the package.
_ACCURACIES = {
    "ga_final": "GA",
    "ga_second_half": "GA, 2nd half",
    "pa_before_final": "PA before",
    "pa_before_masked_final": "PA before, own classes",
    "pa_final": "PA after",
}


@dataclasses.dataclass(frozen=True)
class Row:
    """A printed figure."""

    method: str
    dataset: str
    setting: str
    metric: str
    value: str
    spread: str

    @property
    def column(self) -> tuple[str, str]:
        """Data set and setting, which together are a column of a table."""
        return self.dataset, self.setting

    def text(self) -> str:
        """The figure as it is shown: fractions of 1 in percent, a dash for no result."""
        if self.value == "-":
            return "–"
        parts = [self.value, *filter(None, [self.spread])]
        if self.metric in _FRACTIONS:
            parts = [f"{decimal.Decimal(part).scaleb(2):f}" for part in parts]
        return " ± ".join(parts)


@dataclasses.dataclass(frozen=True)
class Selection:
    """Rows of a table, by patterns."""

    table: str
    dataset: str = "*"
    setting: str = "*"
    methods: tuple[str, ...] = ("*",)

    @classmethod
    def parse(cls, fields: str) -> Selection:
        """Reads the fields of the first mark in a flagfile."""
        table, dataset, setting, *methods = (field.strip() for field in fields.split("|"))
        patterns = [pattern.strip() for field in methods for pattern in field.split(";")]
        return cls(table, dataset, setting, tuple(patterns) or ("*",))

    def includes(self, row: Row) -> bool:
        """Whether the row, which is in the same table, is selected."""
        return (
            fnmatch.fnmatchcase(row.dataset, self.dataset)
            and fnmatch.fnmatchcase(row.setting, self.setting)
            and any(fnmatch.fnmatchcase(row.method, pattern) for pattern in self.methods)
        )

    def rows(self) -> list[Row]:
        """The selected rows.

        Raises:
            ValueError: there are none.
        """
        rows = [row for row in read_table(self.table) if self.includes(row)]
        if not rows:
            raise ValueError(f"no published figure for {self}")
        return rows


def read_table(name: str) -> list[Row]:
    """The rows of a table, without the gains, which are differences of others."""
    with open(FLAGS / "published" / f"{name}.csv", newline="", encoding="utf-8") as file:
        rows = [Row(**row) for row in csv.DictReader(file)]
    return [row for row in rows if "gain" not in row.metric]


def flagfiles() -> list[pathlib.Path]:
    """All flagfiles."""
    return sorted(FLAGS.rglob("*.flags"))


def selections(text: str) -> list[Selection]:
    """What the marks of a flagfile select."""
    return [Selection.parse(match["fields"]) for match in _COMMENT.finditer(text)]


def comment(selection: Selection) -> str:
    """The figures of a selection as lines of a comment."""
    rows = selection.rows()
    metrics = _unique(row.metric for row in rows)
    unit = " in percent" if set(metrics) <= _PERCENT else ""
    columns = _unique(row.column for row in rows)
    parts = []
    for column in columns:
        methods = _unique(row.method for row in rows if row.column == column)
        figures = ", ".join(f"{method} {_cell(rows, column, method)}" for method in methods)
        named = f"{column[1]}: " if len(columns) > 1 else ""
        parts.append(named + figures)
    text = f"Published {' / '.join(metrics)}{unit} ({selection.table}): {'; '.join(parts)}."
    return "".join(
        f"# {line}\n"
        for line in textwrap.wrap(
            text, 98, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False
        )
    )


def fill_comments(text: str) -> str:
    """A flagfile with the figures that its marks ask for."""

    def fill(match: re.Match) -> str:
        first, *_, last = match[0].splitlines(keepends=True)
        return first + comment(Selection.parse(match["fields"])) + last

    return _COMMENT.sub(fill, text)


def fill_page(text: str) -> str:
    """The page with the tables that its marks ask for."""

    def fill(match: re.Match) -> str:
        first, *_, last = match[0].splitlines(keepends=True)
        table, layout, *dataset = (field.strip() for field in match["fields"].split("|"))
        rows = Selection(table, *dataset).rows()
        return f"{first}\n{_LAYOUTS[layout](table, rows)}\n{last}"

    def fill_measured(match: re.Match) -> str:
        first, *_, last = match[0].splitlines(keepends=True)
        return f"{first}\n{_as_measured(match['fields'].strip())}\n{last}"

    return _MEASURED.sub(fill_measured, _TABLE.sub(fill, text))


def _unique(values: Iterable) -> list:
    return list(dict.fromkeys(values))


def _cell(rows: Sequence[Row], column: tuple[str, str], method: str) -> str:
    """All figures of a method in a column; empty if there are none."""
    found = [row.text() for row in rows if (row.column, row.method) == (column, method)]
    return " / ".join(found)


def _markdown(lines: Sequence[Sequence[str]]) -> str:
    head, *body = lines
    return "".join(f"| {' | '.join(line)} |\n" for line in (head, ["---"] * len(head), *body))


def _links(table: str, column: tuple[str, str], method: str | None = None) -> str:
    """Links to the flagfiles whose marks select the column, or a method's figures in it."""
    links = []
    for path in flagfiles():
        for selection in selections(path.read_text(encoding="utf-8")):
            if selection.table != table:
                continue
            chosen = [row for row in selection.rows() if row.column == column]
            if any(method in (None, row.method) for row in chosen):
                target = path.relative_to(FLAGS.parent)
                links.append(f"[{path.stem}](../{target})")
    return ", ".join(_unique(links))


def _column_names(columns: Sequence[tuple[str, str]]) -> list[str]:
    several = len({dataset for dataset, _ in columns}) > 1
    return [f"{dataset}, {setting}" if several else setting for dataset, setting in columns]


def _figures(rows: Sequence[Row]) -> str:
    """What the numbers in a cell are."""
    return " / ".join(_unique(row.metric for row in rows))


def _by_method(table: str, rows: Sequence[Row]) -> str:
    """A table for each data set, or a single one if it has few columns."""
    columns = _unique(row.column for row in rows)
    datasets = _unique(row.dataset for row in rows)
    tables = []
    for dataset in datasets if len(columns) > 6 else [None]:
        part = [row for row in rows if dataset in (None, row.dataset)]
        columns = _unique(row.column for row in part)
        name = f"{part[0].dataset}, " if len({row.dataset for row in part}) == 1 else ""
        lines = [[f"{name}{_figures(part)}", *_column_names(columns)]]
        for method in _unique(row.method for row in part):
            lines.append([method, *(_cell(part, column, method) for column in columns)])
        links = [_links(table, column) for column in columns]
        if any(links):
            lines.append(["flagfiles", *links])
        tables.append(_markdown(lines))
    return "\n".join(tables)


def _by_setting(table: str, rows: Sequence[Row]) -> str:
    methods = _unique(row.method for row in rows)
    columns = _unique(row.column for row in rows)
    lines = [[_figures(rows), *methods, "flagfiles"]]
    for column, name in zip(columns, _column_names(columns), strict=True):
        cells = [_cell(rows, column, method) for method in methods]
        lines.append([name, *cells, _links(table, column)])
    return _markdown(lines)


def _as_list(table: str, rows: Sequence[Row]) -> str:
    lines = [["method", "setting", _figures(rows), "flagfiles"]]
    for method, column in _unique((row.method, row.column) for row in rows):
        name = ", ".join(filter(None, column))
        lines.append([method, name, _cell(rows, column, method), _links(table, column, method)])
    return _markdown(lines)


def _as_measured(name: str) -> str:
    """A row for each run of a comparison, with the figures that were published of its method."""
    flagfile = FLAGS / "reproduction" / f"{name}.flags"
    (selection,) = selections(flagfile.read_text(encoding="utf-8"))
    published = selection.rows()
    (column,) = _unique(row.column for row in published)
    names = {row.method.lower(): row.method for row in published}
    path = PAGE.with_suffix("") / name / "comparison.csv"
    lines = [["", *_ACCURACIES.values(), f"published {_figures(published)}"]]
    with open(path, newline="", encoding="utf-8") as file:
        for run in csv.DictReader(file):
            method = names[run["algorithm"]]
            accuracies = [f"{float(run[accuracy]):.1f}" for accuracy in _ACCURACIES]
            lines.append([method, *accuracies, _cell(published, column, method)])
    return _markdown(lines)


_LAYOUTS = {"methods": _by_method, "settings": _by_setting, "list": _as_list}


def outputs() -> dict[pathlib.Path, str]:
    """The text that each flagfile and the page should have."""
    texts = {path: fill_comments(path.read_text(encoding="utf-8")) for path in flagfiles()}
    texts[PAGE] = fill_page(PAGE.read_text(encoding="utf-8"))
    return texts


def main() -> None:
    """Writes the files that differ and names them."""
    for path, text in outputs().items():
        if path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")
            print(path.relative_to(FLAGS.parent))


if __name__ == "__main__":
    main()
