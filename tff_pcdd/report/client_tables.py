"""Tables by whose columns readers can sort: of clients, and of methods."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Sequence

from tff_pcdd import measures, tables, text
from tff_pcdd.report import shades
from tff_pcdd.results import by_client
from tff_pcdd.results.by_client import ClientResult, RunClients
from tff_pcdd.results.client_gains import ClientGains

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
        detail: what is said below its name otherwise.
        best: the columns in which its value is the best.
    """

    name: str
    cells: Sequence[tuple[str, float | None]]
    dots: tuple[float | None, float | None] = (None, None)
    note: str = ""
    detail: str = ""
    best: Collection[int] = ()


@dataclasses.dataclass(frozen=True)
class Table:
    """A table.

    Attributes:
        columns: its columns of numbers.
        rows: its rows; of clients, that with the lowest accuracy first.
        left_out: number of clients that have no row.
        note: what is said below it; empty for nothing.
    """

    columns: Sequence[Column]
    rows: Sequence[Row]
    left_out: int = 0
    note: str = ""


# Columns of a run's table, by their names in clients.csv.
_COLUMNS = {
    "ga": Column("global", "accuracy of the global model"),
    "pa_before": Column("before", "accuracy of the personal model before its local steps"),
    "pa": Column("PA", "accuracy of the personal model after its local steps"),
    "pa_masked": Column("own classes", "PA if only the client's own classes are possible answers"),
    "balanced": Column(
        "balanced", "mean recall of the personal model over the classes tested here"
    ),
    "over_global": Column("over global", "PA minus the global model's accuracy"),
    "over_local": Column("over local", "PA minus the accuracy of training alone"),
}


def of_run(found: RunClients) -> Table:
    """The clients of a run."""
    used = [
        name
        for name in _COLUMNS
        if any(client.values[name] is not None for client in found.clients)
    ]
    columns = [
        Column("train", "training samples"),
        Column("test", "test samples"),
        *([Column("classes", "classes with training samples")] if found.classes else ()),
        *(_COLUMNS[name] for name in used),
    ]
    rows = []
    for index, client in enumerate(found.clients):
        counts = [client.train, client.test, *([found.held(index)] if found.classes else ())]
        cells: list[tuple[str, float | None]] = [(text.whole(value), value) for value in counts]
        cells += [(_shown(name, client.values[name]), client.values[name]) for name in used]
        dots = (client.values["ga"], client.values["pa"])
        rows.append(
            (client.values["pa"], Row(text.name_of(client.name), cells, dots, client.warning))
        )
    return _table(columns, rows)


def _shown(name: str, value: float | None) -> str:
    """A value of clients.csv; differences have a sign."""
    return text.signed(value) if name.startswith("over_") else text.percent(value)


def of_comparison(found: Sequence[ClientResult], methods: Sequence[str]) -> Table:
    """The clients of the runs on one partition: PA of each method, averaged over its seeds."""
    by_method = {}
    for method in methods:
        own = [client for client in found if client.run[1] == method]
        if values := by_client.mean_pa(own):
            by_method[method] = values
    columns = [Column(method, f"PA of {method}") for method in by_method]
    if columns:
        columns.insert(0, Column("test", "test samples, in the run that has the fewest of them"))
    rows = []
    for name, tested in by_client.tested(found).items():
        accuracies = [values.get(name) for values in by_method.values()]
        known = [value for value in accuracies if value is not None]
        cells: list[tuple[str, float | None]] = [(text.whole(tested), tested)]
        cells += [*((text.percent(value), value) for value in accuracies)]
        rows.append((tables.mean(known), Row(text.name_of(name), cells)))
    return _table(columns, rows)


@dataclasses.dataclass(frozen=True)
class HeatMap:
    """What each method gains at each client.

    Attributes:
        over: the method with which the others are compared, in words.
        columns: the methods, by PA after local training.
        rows: for each client its name, its number of test samples, and for each method the text,
            the class of its color, and the gain; None where it is not defined.
        left_out: number of clients that have no row.
        first: the models of the first column, if it has those that an answer recommends.
    """

    over: str
    columns: Sequence[str]
    rows: Sequence[tuple[str, int, Sequence[tuple[str, str, float] | None]]]
    left_out: int = 0
    first: str = ""


def heat_map(
    found: ClientGains, methods: Sequence[str], recommended: ClientGains | None = None
) -> HeatMap:
    """The gains of methods, in this order, at all clients; the largest losses come first.

    Args:
        recommended: the gains of other models, which come first.
    """
    shown = {method: found.gains[method] for method in methods if method in found.gains}
    first = ""
    if recommended is not None:
        [(method, own)] = recommended.gains.items()
        first = f"{method}, {measures.heading(recommended.key)}"
        shown = {first: own, **shown}
    largest = max((abs(each.gain) for own in shown.values() for each in own.values()), default=0)
    rows = []
    for name in found.clients[:MOST]:
        cells: list[tuple[str, str, float] | None] = []
        for own in shown.values():
            each = own.get(name)
            if each is None:
                cells.append(None)
            else:
                color = shades.of_gain(each.gain, largest) if each.counts else "chance"
                cells.append((text.signed(each.gain), color, each.gain))
        rows.append((text.name_of(name), found.samples[name], cells))
    return HeatMap(found.shown_over, [*shown], rows, max(0, len(found.clients) - MOST), first)


def _table(columns: Sequence[Column], rows: Sequence[tuple[float | None, Row]]) -> Table:
    """The rows with the lowest accuracy first."""
    ordered = sorted(rows, key=lambda pair: (pair[0] is None, pair[0] or 0.0))
    kept = [row for _, row in ordered[:MOST]]
    return Table(columns, kept, len(rows) - len(kept))
