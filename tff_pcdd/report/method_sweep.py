"""What the report of a sweep over methods shows."""

from __future__ import annotations

import glob
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tff_pcdd import calls, findings, measures, tables, text
from tff_pcdd.findings import Finding
from tff_pcdd.report import pages
from tff_pcdd.report.client_tables import Column, Row, Table
from tff_pcdd.report.sweep_parts import (
    FINAL,
    Command,
    Models,
    command,
    config_of,
    held_out,
    terms_of,
    title_of,
)
from tff_pcdd.results import by_client, comparison_directory, method_traits, wording
from tff_pcdd.results.comparison_directory import Compared
from tff_pcdd.results.reading import Directory
from tff_pcdd.results.run_results import Results
from tff_pcdd.studies.method_sweep import AFTER, BEST, CALLS, COMPARISON, POINTS
from tff_pcdd.studies.sweeps import of_earlier
from tff_pcdd.studies.tuning import ALL, HOW_SCORED, WHY_STOPPED, scored_by
from tff_pcdd.tables import read_number
from tff_pcdd.text import name_of
from tff_pcdd.training.file_names import CONFIG, REPORT, SWEEP_RUNS

# The configurations of the final runs.
_FINAL_RUNS = f"{COMPARISON}/*/seed_*/{CONFIG}"


def values(directory: Directory, cells: Sequence[Mapping[str, str]], page: Path) -> dict[str, Any]:
    """The values of the template; `page` is the directory of the page."""
    by_method = tables.grouped((row["algorithm"], row) for row in cells)
    best = {
        method: next((row for row in own if row["chosen"] == "True"), None)
        for method, own in by_method.items()
    }
    chosen = {method: row["settings"] for method, row in best.items() if row is not None}
    finals = Directory(directory.path / COMPARISON, directory.compared)
    report = finals.path / REPORT
    read = comparison_directory.read
    final = directory.attempt(COMPARISON, read, finals) or comparison_directory.NOTHING
    call = _last_call(directory)
    recorded = str(call.get("criterion"))
    criterion = recorded if recorded in measures.best_rounds() else ""
    found = _of_choice(directory, by_method, chosen, criterion, final.results)
    found += _of_earlier(directory, cells)
    # Unless it is recorded, it is not known which of them has decided.
    va = measures.heading(criterion) if criterion else "VA"
    of_what = measures.meaning(criterion) if criterion else "accuracy on held-out samples"
    column = Column(va, f"{of_what}, {HOW_SCORED[scored_by(cells)]}, with the chosen settings")
    rows = [_method_row(method, own, best[method]) for method, own in by_method.items()]
    rows.sort(key=lambda row: -(row.cells[0][1] or 0.0))
    # The accuracy of the comparison that corresponds to that by which settings were chosen.
    asked = "pa_final" if criterion == "va_personal" else "ga_final"
    shown, recommended = _recommended(final, asked)
    order = [*recommended, *(row.name for row in rows)]
    best_first = sorted(chosen, key=lambda method: order.index(name_of(method)))
    config = config_of(directory, _FINAL_RUNS)
    title = title_of(text.listed([name_of(name) for name in by_method], 4), config)
    return {
        "title": title,
        "terms": terms_of(title, config, va),
        "sentence": f"{text.plural(len(by_method), 'method')} tuned with "
        f"{text.plural(len(cells), 'point')} in total. Every choice was made on samples that "
        "clients held out; no test data had a part in it.",
        "answers": [pair for each in final.answers[:1] for pair in wording.sentences(each)]
        + (_highest(rows, va, bool(final.answers)) if chosen else []),
        "findings": findings.advised_once([*found, *final.findings]),
        "table": _table(column, rows, call),
        "commands": [*_commands(directory, best_first, recommended)],
        "flags": [],
        "link": pages.address(report, page) if report.is_file() else "",
        "points_title": "Chosen settings",
        "all_points": _all_points(column, by_method, best),
        "first": "method",
        "accuracies": [shown.mean(key) for key in FINAL],
        "finals": final.results,
        # The method of these accuracies first.
        "what": text.listed(
            [name_of(m) for m in sorted(by_method, key=lambda m: m not in shown.methods)], 4
        ),
        "problems": directory.problems,
    }


def _table(column: Column, rows: Sequence[Row], call: Mapping[str, Any]) -> Table:
    """The lines of all methods; `column` is that of what has decided, `call` the last call."""
    # Calls of earlier versions did not record which settings competed.
    why = WHY_STOPPED.get(str(call.get("halving")), WHY_STOPPED[ALL])
    columns = [
        column,
        Column("points", "points of the grid that were tried"),
        Column("stopped", f"points that were stopped early, {why}"),
        Column("rounds", "rounds that all points have trained together, with all seeds"),
    ]
    return Table(columns, rows)


def _all_points(
    column: Column,
    by_method: Mapping[str, Sequence[Mapping[str, str]]],
    best: Mapping[str, Mapping[str, str] | None],
) -> Table:
    """The lines of all points of all methods."""
    columns = [column, Column("rounds", "rounds of its runs, with all seeds")]
    return Table(
        columns,
        [_point_row(row, row is best[method]) for method, own in by_method.items() for row in own],
    )


def _of_earlier(directory: Directory, cells: Sequence[Mapping[str, str]]) -> Iterator[Finding]:
    """Points that earlier calls have tried, and those of this one that may still go on."""
    tried = {_place(row["algorithm"], row["settings"]): row for row in cells}
    stopped_early = [name for name, row in tried.items() if _is_stopped(row)]
    return of_earlier(directory.path, POINTS, tried, stopped_early)


def _recommended(final: Compared, asked: str) -> tuple[Results, dict[str, Models]]:
    """The runs of the method to take by the accuracy that was asked for, and all models to take.

    Those of that accuracy come first.
    """
    models = final.answers[0].recommended if final.answers else []
    taken = [
        each.method
        for each in models
        if asked in each.keys or (asked == "pa_final" and each.is_personal)
    ]
    models = models[::-1] if asked == "ga_final" else models
    shown = final.results.of(method=taken[0]) if taken else Results(())
    return shown, {
        each.method: Models(
            wording.models(each), wording.reasons(final.answers[0], each), each.flags
        )
        for each in models
    }


def _method_row(
    method: str, rows: Sequence[Mapping[str, str]], best: Mapping[str, str] | None
) -> Row:
    """The line of a method: what was chosen for it, and how many points it has tried."""
    score = None if best is None else read_number(best["va"])
    stopped = sum(map(_is_stopped, rows))
    rounds = sum(read_number(row["rounds"]) or 0 for row in rows)
    cells = [
        (text.percent(score), score),
        (text.whole(len(rows)), len(rows)),
        (text.whole(stopped), stopped),
        (text.whole(rounds), rounds),
    ]
    shown = name_of(best["settings"] or "defaults") if best else "nothing"
    return Row(name_of(method), cells, detail=shown.replace(",", ", "))


def _point_row(row: Mapping[str, str], is_chosen: bool) -> Row:
    """The line of a point in the list of all points."""
    name = name_of(f"{row['algorithm']}: {row['settings'] or 'defaults'}".replace(",", ", "))
    value, trained = read_number(row["va"]), read_number(row["rounds"])
    cells = [(text.percent(value), value), (text.whole(trained), trained)]
    note = "diverged" if row["diverged"] == "True" else ""
    return Row(name, cells, note=note, detail="chosen" if is_chosen else "")


def _commands(
    directory: Directory,
    methods: Sequence[str],
    recommended: Mapping[str, Models],
) -> Iterator[Command]:
    """The commands of those of the methods whose flagfiles are there."""
    for method in methods:
        if Path(method).name != method:
            continue
        name = f"{BEST}/{method}.flags"
        if directory.attempt(name, directory.text, name):
            models = recommended.get(name_of(method))
            yield command(directory, _FINAL_RUNS, method, name, f"best_{method}", models)


def _of_choice(
    directory: Directory,
    by_method: Mapping[str, Sequence[Mapping[str, str]]],
    chosen: Mapping[str, str],
    criterion: str,
    finals: Results,
) -> list[Finding]:
    """What may be wrong with the choices: ties, edges of the grids, and too few samples.

    `criterion` is the accuracy that has decided; empty if it is unknown.
    """
    edges, choices = {}, []
    for method, settings in chosen.items():
        rows = by_method[method]
        scores = {row["settings"]: read_number(row["va"]) for row in rows}
        ended = {
            row["settings"]
            for row in rows
            if not row["stopped_after"] and row["diverged"] != "True"
        }
        # The settings of another method refuse this method's own coefficients.
        config = config_of(directory, _FINAL_RUNS, method)
        courses = {row["settings"]: _course(row) for row in rows}
        edges[name_of(method)] = findings.of_choice(scores, settings, config, criterion, courses)
        trained = {point: score if point in ended else None for point, score in scores.items()}
        choices.append((name_of(method), settings, trained))
    places = [glob.escape(_place(method, settings)) for method, settings in chosen.items()]
    chose = [[*directory.folders(f"{each}/seed_*/{CONFIG}")] for each in places]
    folders = [sorted(each, key=_seed) for each in chose if each]
    samples = max((by_client.held_out(each[0]) for each in folders), default=0)
    samples = samples or held_out(directory, _FINAL_RUNS)
    seeds = max(([_seed(run) for run in each] for each in folders), key=len, default=[0])
    taken = {int(each.seed) for each in finals if each.seed.isdecimal()}
    return [*findings.merged(edges), *findings.of_noise(choices, samples, seeds, taken)]


def _course(row: Mapping[str, str]) -> dict[float, float]:
    """The accuracies of a point after the rungs and at the end, as far as they are known."""
    numbers = {name.removeprefix(AFTER): name for name in row if name.startswith(AFTER)}
    pairs = [(read_number(number), read_number(row[name])) for number, name in numbers.items()]
    # Earlier versions recorded only the last one.
    after = read_number(row["stopped_after"]) if row["stopped_after"] else math.inf
    pairs.append((after, read_number(row["va"])))
    return {n: score for n, score in pairs if n is not None and score is not None}


def _place(method: str, settings: str) -> str:
    """The folder of a point, from that of the sweep."""
    return f"{SWEEP_RUNS}/{method}/{settings or 'default'}"


def _is_stopped(row: Mapping[str, str]) -> bool:
    """Whether a point was stopped early, and not because it diverged."""
    return bool(row["stopped_after"]) and row["diverged"] != "True"


def _last_call(directory: Directory) -> Mapping[str, Any]:
    """The record of the last call; empty without one, such as of a sweep started from Python."""
    return (directory.attempt(CALLS, calls.read, directory.path / CALLS) or [{}])[-1]


def _seed(run: Path) -> int:
    """The seed of a run, from the name of its folder."""
    seed = run.name.removeprefix("seed_")
    return int(seed) if seed.isdecimal() else 0


def _highest(rows: Sequence[Row], va: str, answered: bool) -> list[tuple[str, str]]:
    """The methods with the highest VA, whose heading is `va`, from the rows in its order."""
    # In the answer of the final runs, which stands above, another method may lead.
    why = " Settings were chosen by it; the above is from test samples and final seeds." * answered
    # Baselines are no candidates.
    rows = [row for row in rows if not method_traits.is_baseline(row.name)] or rows
    best = rows[0]
    shown, score = best.cells[0]
    scores = [(row.name, row.cells[0][1]) for row in rows]
    tied = [
        name for name, each in scores if each is not None and tables.is_equal(each, score or 0.0)
    ]
    names, what = best.name, f"{shown} % with {best.detail}."
    if len(tied) > 1:
        names, what = text.listed(tied, 8), f"{shown} % with each of these {len(tied)} methods."
    return [(f"Highest {va}: {names}.", what + why)]
