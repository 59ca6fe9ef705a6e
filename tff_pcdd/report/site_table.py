"""Tables by whose columns readers can sort: of clients, and of methods."""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Callable, Mapping, Sequence

from tff_pcdd.report import text
from tff_pcdd.results import by_client
from tff_pcdd.results.by_client import Site, Sites
from tff_pcdd.results.runs import ALONE

# The rows of a table; those with the lowest accuracy if there are more clients.
MOST = 500


@dataclasses.dataclass(frozen=True)
class Column:
    """A column of numbers.

    Attributes:
        heading: its name.
        meaning: what it is, for a tooltip and the explanation below the table.
    """

    heading: str
    meaning: str


@dataclasses.dataclass(frozen=True)
class Row:
    """A client or a method.

    Attributes:
        name: its name.
        cells: for each column, the text and the value by which it is sorted.
        dots: positions from 0 to 100 of the global and the personal model; None where undefined.
        note: a warning.
    """

    name: str
    cells: Sequence[tuple[str, float | None]]
    dots: tuple[float | None, float | None] = (None, None)
    note: str = ""


@dataclasses.dataclass(frozen=True)
class Table:
    """A table.

    Attributes:
        columns: its columns of numbers.
        rows: its rows; of clients, that with the lowest accuracy first.
        left_out: number of clients that have no row.
    """

    columns: Sequence[Column]
    rows: Sequence[Row]
    left_out: int = 0


# Columns of a run's table, by their names in clients.csv.
_COLUMNS: Mapping[str, tuple[Column, Callable[[float | None], str]]] = {
    "ga": (Column("global", "accuracy of the global model"), text.percent),
    "pa_before": (
        Column("before", "accuracy of the personal model before its local steps"),
        text.percent,
    ),
    "pa": (Column("PA", "accuracy of the personal model after its local steps"), text.percent),
    "pa_masked": (
        Column("own classes", "PA if only the client's own classes are possible answers"),
        text.percent,
    ),
    "balanced": (
        Column("balanced", "mean recall of the personal model over the classes tested here"),
        text.percent,
    ),
    "over_global": (Column("over global", "PA minus the global model's accuracy"), text.signed),
    "over_local": (
        Column("over local", "PA minus the accuracy of training alone"),
        text.signed,
    ),
}


def of_run(found: Sites) -> Table:
    """The clients of a run."""
    used = [name for name in _COLUMNS if any(site.values[name] is not None for site in found.sites)]
    columns = [
        Column("train", "training samples"),
        Column("test", "test samples"),
        *([Column("classes", "classes with training samples")] if found.classes else ()),
        *(_COLUMNS[name][0] for name in used),
    ]
    rows = []
    for index, site in enumerate(found.sites):
        counts = [site.train, site.test, *([found.held(index)] if found.classes else ())]
        cells: list[tuple[str, float | None]] = [(text.whole(value), value) for value in counts]
        cells += [(_COLUMNS[name][1](site.values[name]), site.values[name]) for name in used]
        dots = (site.values["ga"], site.values["pa"])
        rows.append((site.values["pa"], Row(site.name, cells, dots, site.warning)))
    return _table(columns, rows)


def of_comparison(found: Sequence[Site], methods: Sequence[str]) -> Table:
    """The clients of the runs on one partition: PA of each method, averaged over its seeds."""
    columns, by_method = [], []
    for method in methods:
        own = [site for site in found if site.run[1] == method]
        for column, heading, meaning, shown in (
            ("pa", method, f"PA of {method}", text.percent),
            ("over_local", "over local", f"PA of {method} minus that of local", text.signed),
        ):
            values = by_client.mean_by_name(own, column)
            if values and not (method == ALONE and column == "over_local"):
                columns.append(Column(heading, meaning))
                by_method.append((column, values, shown))
    if columns:
        columns.insert(0, Column("test", "test samples, in the run that has the fewest of them"))
    rows = []
    for name in dict.fromkeys(site.name for site in found):
        cells = [(shown(values.get(name)), values.get(name)) for _, values, shown in by_method]
        known = [
            value
            for (column, *_), (_, value) in zip(by_method, cells, strict=True)
            if column == "pa" and value is not None
        ]
        tested = min(site.test for site in found if site.name == name)
        cells.insert(0, (text.whole(tested), tested))
        rows.append((statistics.fmean(known) if known else None, Row(name, cells)))
    return _table(columns, rows)


def _table(columns: Sequence[Column], rows: Sequence[tuple[float | None, Row]]) -> Table:
    """The rows with the lowest accuracy first."""
    ordered = sorted(rows, key=lambda pair: (pair[0] is None, pair[0] or 0.0))
    kept = [row for _, row in ordered[:MOST]]
    return Table(columns, kept, len(rows) - len(kept))
