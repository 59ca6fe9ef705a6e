"""The tables and curves of the methods that a comparison has run on one partition."""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Sequence

from tff_pcdd import measures, tables, text
from tff_pcdd.report import charts
from tff_pcdd.report.client_tables import Column, Row, Table
from tff_pcdd.results import by_client, method_traits
from tff_pcdd.results.by_client import ClientResult
from tff_pcdd.results.run_results import ALONE, Results
from tff_pcdd.tables import BASELINE
from tff_pcdd.training import colors

_WITHOUT = "no global model"
_WITHOUT_NOTE = (
    "Without a global model, GA is the mean over clients of each personal model's accuracy on the "
    "whole test set."
)


def accuracies(results: Results, clients: Sequence[ClientResult]) -> Table:
    """The accuracies of each method, and what it gains over training alone.

    Args:
        clients: the clients of these runs; empty if nothing is known of them.
    """
    keys = list(measures.TABLE)
    columns = _columns(keys)
    gains = results.over_local()
    compared = bool(results.of(method=ALONE).usable)
    if compared:
        columns.append(Column("over local", "PA after minus that of training alone, same seed"))
    if clients:
        columns.append(Column("lowest PA", "PA at the client where it is lowest, mean over seeds"))
    columns.append(Column("seeds", "finished runs that did not diverge"))
    rows = []
    for method in method_traits.ordered(results):
        runs = results.of(method=method)
        cells = _cells(runs, keys)
        if compared:
            over = gains.get(method, [])
            cells.append((tables.gains(over), tables.mean(over)))
        own = [client for client in clients if client.run[1] == method]
        if clients:
            lowest = by_client.lowest_pa(own)
            cells.append((text.percent(lowest), lowest))
        usable, diverged = len(runs.usable), len(runs.diverged)
        cells.append((tables.count(usable, usable, diverged), usable))
        detail, ga = "", runs.mean("ga_final")
        if by_client.without_global_model(own):
            detail, ga = _WITHOUT, None
        rows.append(Row(method, cells, (ga, runs.mean("pa_final")), detail=detail))
    note = _WITHOUT_NOTE if any(row.detail for row in rows) else ""
    return Table(columns, _with_best(rows, range(len(keys))), note=note)


def further(results: Results) -> Table | None:
    """Metrics, a user's measures, and accuracies in the best round on held-out samples, if any."""
    keys = [key for key in measures.tabled(results.value_keys()) if key not in measures.TABLE]
    methods = method_traits.ordered(results)
    rows = [Row(method, _cells(results.of(method=method), keys)) for method in methods]
    ranked = [index for index, key in enumerate(keys) if not tables.is_own(key)]
    return Table(_columns(keys), _with_best(rows, ranked)) if keys else None


def _columns(keys: Sequence[str]) -> list[Column]:
    """The columns of values of summary.json."""
    return [Column(measures.heading(key), measures.meaning(key)) for key in keys]


def _cells(runs: Results, keys: Sequence[str]) -> list[tuple[str, float | None]]:
    """The cells of a method in these columns."""
    return [(tables.cell(key, runs.values(key)), runs.mean(key)) for key in keys]


def _with_best(rows: Sequence[Row], compared: Sequence[int]) -> list[Row]:
    """The rows with marks of the best values of some columns; baselines are not compared."""
    ranked = [row for row in rows if not method_traits.is_baseline(row.name)]
    best = {}
    for index in compared:
        values = [row.cells[index][1] for row in ranked]
        known = [value for value in values if value is not None]
        if len(known) > 1:
            best[index] = max(known)
    return [
        dataclasses.replace(
            row, best=[i for i, value in best.items() if row in ranked and row.cells[i][1] == value]
        )
        for row in rows
    ]


def costs(results: Results) -> Table:
    """What each method takes."""
    columns = [
        Column("s per round", "median time of a round, without the first"),
        Column("over FedAvg", "this time divided by FedAvg's"),
        Column("sent", "bytes that a client sends in a round"),
        Column("received", "bytes that a client receives in a round"),
        Column("kept", "parameters that a client keeps between rounds"),
    ]
    baseline = results.of(method=BASELINE).mean("seconds_per_round")
    rows = []
    for method in method_traits.ordered(results):
        runs = results.of(method=method)
        seconds = runs.mean("seconds_per_round")
        ratio = seconds / baseline if seconds is not None and baseline else None
        ways = ("upload_bytes", "download_bytes")
        sent, received = (tables.mean(runs.bytes_per_client(way)) for way in ways)
        kept = runs.mean("personal_parameters_per_client")
        cells = [
            (tables.NO_VALUE if seconds is None else f"{seconds:.3f}", seconds),
            (tables.NO_VALUE if ratio is None else f"{ratio:.2f}×", ratio),
            (text.size(sent), sent),
            (text.size(received), received),
            (text.whole(kept), kept),
        ]
        rows.append(Row(method, cells))
    return Table(columns, rows)


def curves(results: Results) -> list[charts.Chart]:
    """GA and PA over the rounds, averaged over seeds; the legend is sorted by the last value."""
    methods, styles = results.by_method(), colors.of_methods(results.methods)
    drawn = []
    for column, title, own in (
        ("ga", "GA (%): global model", method_traits.drawn(results.methods)),
        ("pa", "PA (%): personal models", results.methods),
    ):
        lines = [_line(m, methods[m], column, styles[m]) for m in own]
        lines = [line for line in lines if line.points]
        lines.sort(key=lambda line: -line.points[-1][1])
        if chart := charts.chart(title, lines, percent=True):
            drawn.append(chart)
    return drawn


def _line(method: str, runs: Results, column: str, style: colors.Style) -> charts.Line:
    """The mean curve of a method."""
    common = runs.curve(column)
    points = [(number, statistics.fmean(values)) for number, values in common]
    spread = [statistics.stdev(values) for _, values in common if len(values) > 1]
    return charts.Line(method, points, spread, style)
