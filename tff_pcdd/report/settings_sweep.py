"""What the report of a sweep over settings of one method shows."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import Any

from tff_pcdd import findings, measures, tables, text
from tff_pcdd.report.client_tables import Column, Row, Table
from tff_pcdd.report.sweep_parts import (
    FINAL,
    command,
    config_of,
    held_out,
    terms_of,
    title_of,
)
from tff_pcdd.results import comparison_directory, grid_points
from tff_pcdd.results.gains import gain
from tff_pcdd.results.reading import Directory
from tff_pcdd.results.run_results import Result, Results
from tff_pcdd.studies.sweeps import CRITERION, FLAGS, of_earlier
from tff_pcdd.tables import read_number
from tff_pcdd.text import name_of
from tff_pcdd.training.file_names import CONFIG


@dataclasses.dataclass(frozen=True)
class Point:
    """A point of a grid.

    Attributes:
        name: its settings, such as "a=1,b=2".
        scores: the accuracy on held-out samples by seed, or a single one; empty if not measured.
        cells: the cells of the table.
        chosen: whether it was chosen.
    """

    name: str
    scores: Mapping[str, float]
    cells: Sequence[tuple[str, float | None]]
    chosen: bool = False

    @property
    def score(self) -> float | None:
        """The mean over seeds."""
        return tables.mean(self.scores.values())


def values(directory: Directory, cells: Sequence[Mapping[str, str]]) -> dict[str, Any]:
    """The values of the template."""
    runs = f"*/seed_*/{CONFIG}"
    config = config_of(directory, runs)
    flags = directory.attempt(FLAGS, directory.text, FLAGS) or ""
    criterion = _criterion(cells)
    measure = measures.of(criterion)
    by_point = _by_point(directory, cells, [*grid_points.keys(criterion), *FINAL])
    chosen = _chosen(flags, by_point)
    points = []
    for name, own in by_point.items():
        measured = grid_points.measured(own, criterion)
        shown = grid_points.cells(measured, len(own), len(own.diverged))
        points.append(Point(name, own.by_seed(measure.best), shown, name == chosen))
    points.sort(key=_worst_last)
    methods = [*dict.fromkeys(row.get("algorithm", "?") for row in cells)]
    tried = {name for point in by_point for name in findings.read_point(point)}
    columns = [
        Column(measure.heading, f"{measure.meaning}, in the best round of each run"),
        Column("best round", f"the round with the highest {measure.heading}"),
        Column("GA there", "GA in that round; nothing is chosen by it"),
        Column("PA there", "PA in that round; nothing is chosen by it"),
        Column("seeds", "finished runs that did not diverge"),
    ]
    seeds = max(([*point.scores] for point in points), key=len, default=[])
    scores = {p.name: p.score if len(p.scores) == len(seeds) else None for p in points}
    what = " of ".join(text.listed([*map(name_of, names)]) for names in (sorted(tried), methods))
    title = title_of(what, config, tried)
    finals = by_point.get(chosen, Results(()))
    return {
        "title": title,
        "terms": terms_of(title, config, measure.heading),
        "sentence": f"{text.plural(len(points), 'point')} of a grid of "
        f"{text.listed([name_of(name) for name in sorted(tried)])}, "
        f"{text.plural(len(cells), 'finished run')}. The best point has the highest accuracy on "
        "samples that clients held out; no test data had a part in the choice.",
        "answers": _answers(points, measure.heading),
        "findings": [
            *findings.of_choice(scores, chosen, config, criterion),
            *findings.of_noise([("", chosen, scores)], held_out(directory, runs), seeds),
            *of_earlier(directory.path, "*", by_point),
        ],
        "table": Table(columns, [_row(point) for point in points]),
        "commands": [command(directory, runs, chosen, FLAGS)] if flags else [],
        "flags": flags.splitlines(),
        "link": "",
        "all_points": None,
        "points_title": "Points of the grid",
        "first": "settings",
        "accuracies": [tables.mean(finals.by_seed(key).values()) for key in FINAL],
        "finals": finals,
        "what": what,
        "problems": directory.problems,
    }


def _by_point(
    directory: Directory, rows: Sequence[Mapping[str, str]], keys: Sequence[str]
) -> dict[str, Results]:
    """The runs of each point, with some of their values, and with their curves."""
    # No name in the table becomes a path.
    folders = {(run.parent.name, run.name): run for run in directory.folders(f"*/seed_*/{CONFIG}")}
    found: dict[str, list[Result]] = {}
    for row in rows:
        point, seed = row["settings"], row.get("seed", "")
        folder = folders.get((point, f"seed_{seed}"))
        load = functools.partial(comparison_directory.history, directory, folder)
        diverged, method = row.get("diverged") == "True", name_of(row.get("algorithm", "?"))
        values = {key: read_number(row.get(key, "")) for key in keys}
        run = Result("", method, seed, diverged, values, load_history=load)
        found.setdefault(point, []).append(run)
    return {point: Results(runs) for point, runs in found.items()}


def _worst_last(point: Point) -> tuple[bool, bool, float]:
    return not point.chosen, point.score is None, -(point.score or 0.0)


def _chosen(flags: str, points: Mapping[str, Any]) -> str:
    """The point that a flagfile names; empty for none."""
    lines = [line.removeprefix("--") for line in flags.splitlines() if line.startswith("--")]
    given = findings.read_point(",".join(line for line in lines if "," not in line))
    return next(
        (
            name
            for name in points
            if (own := findings.read_point(name)) and own.items() <= given.items()
        ),
        "",
    )


def _criterion(rows: Sequence[Mapping[str, str]]) -> str:
    """The accuracy that has decided, as sweep.csv has recorded it."""
    criteria = list(measures.best_rounds())
    recorded = {row.get(CRITERION, "") for row in rows}
    return next((criterion for criterion in criteria if recorded == {criterion}), criteria[0])


def _answers(points: Sequence[Point], va: str) -> list[tuple[str, str]]:
    """What was chosen, and how far it is ahead; `va` is the heading of what has decided."""
    best = next((point for point in points if point.chosen), None)
    if best is None:
        return []
    found, tied = f"{va} {tables.spread([*best.scores.values()], 1)} %.", ""
    # A point that lacks a seed could not be chosen.
    others = [p for p in points if p is not best and len(p.scores) == len(best.scores)]
    equal = [p for p in others if tables.is_equal(p.score or 0.0, best.score or 0.0)]
    if equal:
        tied = f", one of {1 + len(equal)} points with the same {va}"
    elif others:
        second = max(others, key=lambda point: point.score or 0.0)
        difference = gain(tables.differences(best.scores, second.scores))
        if difference is not None:
            ahead = difference.over(f"the next point, {name_of(second.name)}")
            found += f" {ahead[0].upper()}{ahead[1:]}."
            if not difference.is_certain:
                seeds = text.plural(difference.units, "seed")
                found += f" {seeds} cannot tell the two apart."
    return [(f"Chosen: {name_of(best.name).replace(',', ', ')}{tied}.", found)]


def _row(point: Point) -> Row:
    name = name_of(point.name).replace(",", ", ")
    marked = range(len(point.cells)) if point.chosen else ()
    return Row(name, point.cells, detail="chosen" if point.chosen else "", best=marked)
