"""The tables and curves of the methods that a comparison has run on one partition."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

from tff_pcdd import measures, tables
from tff_pcdd.experiment.history import History, in_common
from tff_pcdd.report import charts, text
from tff_pcdd.report.site_table import Column, Row, Table
from tff_pcdd.results import by_client, comparison
from tff_pcdd.results.by_client import Site
from tff_pcdd.results.comparison import Result
from tff_pcdd.results.reading import Directory
from tff_pcdd.studies.run_groups import ALONE
from tff_pcdd.tables import BASELINE


def by_method(results: Sequence[Result]) -> dict[str, list[Result]]:
    """The results of each method."""
    groups: dict[str, list[Result]] = {}
    for result in results:
        groups.setdefault(result.method, []).append(result)
    return groups


def _mean(values: Sequence[float]) -> float | None:
    return statistics.fmean(values) if values else None


def _shown(key: str, values: Sequence[float]) -> str:
    if measures.of_key(key).group == measures.OWN:
        return tables.significant(values)
    return tables.spread(values, 1)


def accuracies(by_method: Mapping[str, Sequence[Result]], clients: Sequence[Site]) -> Table:
    """The accuracies of each method, and what it gains over training alone.

    Args:
        by_method: the results on one partition.
        clients: the clients of these runs; empty if nothing is known of them.
    """
    every = dict.fromkeys(
        name for results in by_method.values() for result in results for name in result.values
    )
    keys = measures.tabled(every)
    columns = [Column(measures.heading(key), measures.meaning(key)) for key in keys]
    alone = by_method.get(ALONE, ())
    compared = any(not result.diverged for result in alone)
    if compared:
        columns.append(Column("over local", "PA minus that of training alone, with the same seed"))
    if clients:
        columns.append(Column("lowest PA", "PA at the client where it is lowest"))
    columns.append(Column("seeds", "finished runs that did not diverge"))
    rows = []
    for method, results in by_method.items():
        found = {key: comparison.usable(results, key) for key in keys}
        cells = [(_shown(key, values), _mean(values)) for key, values in found.items()]
        if compared:
            cells.append(_over_local(method, results, alone))
        if clients:
            own = [site for site in clients if site.run[1] == method]
            lowest = min(by_client.mean_by_name(own, "pa").values(), default=None)
            cells.append((text.percent(lowest), lowest))
        usable = sum(not result.diverged for result in results)
        diverged = len(results) - usable
        cells.append((tables.count(usable, usable, diverged), usable))
        note, ga = "", _mean(found["ga_final"])
        if by_client.without_global_model([site for site in clients if site.run[1] == method]):
            note, ga = "no global model; GA: mean of the personal models", None
        rows.append(Row(method, cells, (ga, _mean(found["pa_final"])), note))
    return Table(columns, rows)


def _over_local(
    method: str, results: Sequence[Result], alone: Sequence[Result]
) -> tuple[str, float | None]:
    """PA minus that of the run of `local` with the same seed, averaged over seeds."""
    own, others = (comparison.by_seed(runs, "pa_final") for runs in (results, alone))
    gains = tables.differences(own, others)
    gain = None if method == ALONE else _mean(gains)
    if gain is None:
        return tables.NO_VALUE, None
    _, sign, deviation = tables.spread(gains, 1).partition(" ± ")
    return f"{text.signed(gain)}{sign}{deviation}", gain


def costs(by_method: Mapping[str, Sequence[Result]]) -> Table:
    """What each method takes."""
    columns = [
        Column("s per round", "median time of a round, without the first"),
        Column("over FedAvg", "this time divided by FedAvg's"),
        Column("sent", "bytes that a client sends in a round"),
        Column("received", "bytes that a client receives in a round"),
        Column("kept", "parameters that a client keeps between rounds"),
    ]
    baseline = _mean(comparison.usable(by_method.get(BASELINE, ()), "seconds_per_round"))
    rows = []
    for method, results in by_method.items():
        seconds = _mean(comparison.usable(results, "seconds_per_round"))
        ratio = seconds / baseline if seconds is not None and baseline else None
        sent, received = (_per_client(results, f"{way}_bytes") for way in ("upload", "download"))
        kept = _mean(comparison.usable(results, "personal_parameters_per_client"))
        cells = [
            (tables.NO_VALUE if seconds is None else f"{seconds:.3f}", seconds),
            (tables.NO_VALUE if ratio is None else f"{ratio:.2f}×", ratio),
            (text.size(sent), sent),
            (text.size(received), received),
            (text.whole(kept), kept),
        ]
        rows.append(Row(method, cells))
    return Table(columns, rows)


def _per_client(results: Sequence[Result], column: str) -> float | None:
    """Bytes of one client in one round."""
    found = [
        value / rounds / cohort
        for result in results
        if not result.diverged
        and (value := result.values.get(column)) is not None
        and (rounds := result.values.get("rounds"))
        and (cohort := result.values.get("clients_per_round"))
    ]
    return _mean(found)


def curves(directory: Directory, by_method: Mapping[str, Sequence[Result]]) -> list[charts.Chart]:
    """GA and PA over the rounds, averaged over seeds; the legend is sorted by the last value."""
    histories = {}
    for method, results in by_method.items():
        found = [comparison.history(directory, r) for r in results if not r.diverged]
        histories[method] = [history for history in found if history is not None]
    others = [method for method in by_method if method != BASELINE]
    drawn = []
    for column, title in (("ga", "GA (%): global model"), ("pa", "PA (%): personal models")):
        lines = [
            _line(method, found, column, others.index(method) if method in others else None)
            for method, found in histories.items()
        ]
        lines = [line for line in lines if line.points]
        lines.sort(key=lambda line: -line.points[-1][1])
        if chart := charts.chart(title, lines, percent=True):
            drawn.append(chart)
    return drawn


def _line(method: str, histories: Sequence[History], column: str, style: int | None) -> charts.Line:
    """The mean curve of a method, over the rounds that all its runs have measured."""
    common = in_common([history.points(column) for history in histories])
    points = [(n, statistics.fmean(found)) for n, found in common]
    spread = [statistics.stdev(found) for _, found in common] if len(histories) > 1 else []
    return charts.Line(method, points, spread, style)
