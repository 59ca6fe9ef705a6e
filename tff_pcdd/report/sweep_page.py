"""What the report of a sweep shows: over settings of one method, or over methods."""

from __future__ import annotations

import base64
import dataclasses
import functools
import glob
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tff_pcdd import calls, files, findings, measures, tables, text
from tff_pcdd.data import DataConfig
from tff_pcdd.errors import DamagedFileError, SettingError
from tff_pcdd.experiment.config import ExperimentConfig
from tff_pcdd.findings import Finding
from tff_pcdd.report import pages, settings_table, terms
from tff_pcdd.report.client_tables import Column, Row, Table
from tff_pcdd.results import by_client, comparison_directory, grid_points, method_traits, wording
from tff_pcdd.results.comparison_directory import Compared
from tff_pcdd.results.gains import gain
from tff_pcdd.results.reading import Directory
from tff_pcdd.results.run_results import Result, Results
from tff_pcdd.settings import describe
from tff_pcdd.studies.method_sweep import AFTER, BEST, CALLS, COMPARISON, POINTS
from tff_pcdd.studies.sweeps import CRITERION, FLAGS, PICTURE, of_earlier
from tff_pcdd.studies.tuning import ALL, HOW_SCORED, WHY_STOPPED, scored_by
from tff_pcdd.tables import read_number
from tff_pcdd.text import name_of
from tff_pcdd.training.file_names import CONFIG, FAILURES, REPORT, SUMMARY, SWEEP_RUNS, SWEEP_TABLE


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


def content(directory: Directory, page: Path | None = None) -> dict[str, Any]:
    """The values of the template sweep.html.

    Args:
        directory: that of the sweep.
        page: the directory of the page, to which its links are relative; by default the same.

    Raises:
        SettingError: the directory holds no sweep.
        DamagedFileError: sweep.csv is damaged.
    """
    try:
        header, rows = directory.table(SWEEP_TABLE)
    except FileNotFoundError:
        reason = f"holds no sweep: there is no {SWEEP_TABLE}"
        raise SettingError("sweep_dir", directory.path, reason) from None
    cells = [dict(zip(header, row, strict=True)) for row in rows]
    with directory.checked(SWEEP_TABLE):
        if "chosen" in header:
            values = _methods(directory, cells, page or directory.path)
        else:
            values = _settings(directory, cells)
    if (directory.path / FAILURES).exists():
        what = f"Some runs have failed; their errors are in {FAILURES}."
        values["findings"].insert(
            0, Finding("failed", what, "Next: the same command tries them again.")
        )
    values["picture"] = directory.attempt(PICTURE, _picture, directory) or ""
    values["findings"] += [Finding("damaged", line) for line in directory.damaged()]
    return values


def _picture(directory: Directory) -> str:
    """The address of the picture of the sweep, which contains it; errors as of `Directory`."""
    path = directory.locate(PICTURE)
    content = files.read_bytes(path)
    if not content.startswith(b"\x89PNG\r\n\x1a\n"):
        raise DamagedFileError(f"{path} is damaged (no PNG picture)")
    return f"data:image/png;base64,{base64.b64encode(content).decode()}"


def _run(
    directory: Directory, pattern: str, name: str | None = None
) -> tuple[Path, Mapping[str, Any]] | None:
    """The config.json of one of the runs, or of those in the folder of a point or a method."""
    for folder in directory.folders(pattern):
        if name not in (None, folder.parent.name):
            continue
        if (settings := directory.load(folder / CONFIG)) is not None:
            return folder / CONFIG, settings
    return None


def _config(directory: Directory, pattern: str, name: str | None = None) -> ExperimentConfig | None:
    """The settings of such a run."""
    run = _run(directory, pattern, name)
    return None if run is None else settings_table.configuration(run[1])


def _held_out(directory: Directory, pattern: str) -> int:
    """About how many samples such a run holds out; 0 if it is unknown."""
    return next(map(by_client.held_out, directory.folders(pattern)), 0)


class Models(NamedTuple):
    """Models of a method that the answer recommends.

    Attributes:
        what: which models.
        why: why these, although another method leads; else empty.
        flags: the flags of `tasks.export` for them.
    """

    what: str
    why: str
    flags: Sequence[str]


@dataclasses.dataclass(frozen=True)
class Command:
    """What to do with chosen settings.

    Attributes:
        chosen: the point or the method.
        text: the command, as it is typed where the sweep was started.
        asked: what it does, in words.
        recommended: which of the method's models the answer recommends; None for none.
    """

    chosen: str
    text: str
    asked: str
    recommended: Models | None = None


def _command(
    directory: Directory,
    pattern: str,
    chosen: str,
    flagfile: str,
    name: str = "best",
    recommended: Models | None = None,
) -> Command:
    """Exports a finished run of a point or a method; trains if there is none."""
    run = _run(directory, pattern, chosen)
    if run is None:
        text = settings_table.chosen_command(directory.path / flagfile, name)
        asked = "train with the chosen settings; give the other settings again"
    elif _is_usable(directory, run[0].parent):
        seed = name_of(run[1].get("seed", "?"))
        # Training again would compute this very run.
        further = recommended.flags if recommended else []
        text = settings_table.export_command(*run, name, further)
        asked = f"export the models of the run with the chosen settings and seed {seed}"
    else:
        text = settings_table.saved_command(*run, name)
        asked = "train with the chosen settings and the same data"
    return Command(name_of(chosen), text, asked, recommended)


def _is_usable(directory: Directory, folder: Path) -> bool:
    """Whether a run has finished and has not diverged."""
    if not (folder / SUMMARY).is_file():
        return False
    summary = directory.load(folder / SUMMARY)
    return summary is not None and not summary.get("diverged")


def _title(what: str, config: ExperimentConfig | None, tried: Collection[str] = ()) -> str:
    """The title; its data are what all points share, where settings of the data were tried."""
    if config is None or "dataset" in tried:
        return f"Sweep of {what}"
    varied = {setting.name for setting in describe(DataConfig)} & {*tried}
    data = config.data.describe_dataset() if varied else config.data.describe()
    return f"Sweep of {what} on {data}"


def _terms(title: str, config: ExperimentConfig | None, va: str) -> list[tuple[str, str]]:
    """What accuracies are, and the partition if the title names it; `va` has decided."""
    named = config is not None and config.data.partition.describe() in title
    return terms.shown((va, "GA", "PA"), [config] if named else ())


# The keys of the accuracies of the models that a sweep leads to, and of what PA depends on.
_FINAL = ("ga_final", "pa_final", "personal_epochs")

# Settings of one method.


def _settings(directory: Directory, cells: Sequence[Mapping[str, str]]) -> dict[str, Any]:
    runs = f"*/seed_*/{CONFIG}"
    config = _config(directory, runs)
    flags = directory.attempt(FLAGS, directory.text, FLAGS) or ""
    criterion = _criterion(cells)
    measure = measures.of(criterion)
    by_point = _by_point(directory, cells, [*grid_points.keys(criterion), *_FINAL])
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
    title = _title(what, config, tried)
    finals = by_point.get(chosen, Results(()))
    return {
        "title": title,
        "terms": _terms(title, config, measure.heading),
        "sentence": f"{text.plural(len(points), 'point')} of a grid of "
        f"{text.listed([name_of(name) for name in sorted(tried)])}, "
        f"{text.plural(len(cells), 'finished run')}. The best point has the highest accuracy on "
        "samples that clients held out; no test data had a part in the choice.",
        "answers": _answers(points, measure.heading),
        "findings": [
            *findings.of_choice(scores, chosen, config, criterion),
            *findings.of_noise([("", chosen, scores)], _held_out(directory, runs), seeds),
            *of_earlier(directory.path, "*", by_point),
        ],
        "table": Table(columns, [_row(point) for point in points]),
        "commands": [_command(directory, runs, chosen, FLAGS)] if flags else [],
        "flags": flags.splitlines(),
        "link": "",
        "all_points": None,
        "points_title": "Points of the grid",
        "first": "settings",
        "accuracies": [tables.mean(finals.by_seed(key).values()) for key in _FINAL],
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


# Several methods.


def _methods(
    directory: Directory, cells: Sequence[Mapping[str, str]], page: Path
) -> dict[str, Any]:
    """The values for several methods; `page` is the directory of the page."""
    runs = f"{COMPARISON}/*/seed_*/{CONFIG}"
    by_method = tables.grouped((row["algorithm"], row) for row in cells)
    best = {
        method: next((row for row in own if row["chosen"] == "True"), None)
        for method, own in by_method.items()
    }
    chosen = {method: row["settings"] for method, row in best.items() if row is not None}
    rows = [_method_row(method, own, best[method]) for method, own in by_method.items()]
    rows.sort(key=lambda row: -(row.cells[0][1] or 0.0))
    every = [
        _point_row(row, row is best[method]) for method, own in by_method.items() for row in own
    ]
    finals = Directory(directory.path / COMPARISON, directory.compared)
    report = finals.path / REPORT
    read = comparison_directory.read
    final = directory.attempt(COMPARISON, read, finals) or comparison_directory.NOTHING
    call = _last_call(directory)
    recorded = str(call.get("criterion"))
    criterion = recorded if recorded in measures.best_rounds() else ""
    found = _of_choice(directory, by_method, chosen, criterion, final.results)
    tried = {_place(row["algorithm"], row["settings"]): row for row in cells}
    stopped_early = [name for name, row in tried.items() if _is_stopped(row)]
    found += of_earlier(directory.path, POINTS, tried, stopped_early)
    # Unless it is recorded, it is not known which of them has decided.
    va = measures.heading(criterion) if criterion else "VA"
    of_what = measures.meaning(criterion) if criterion else "accuracy on held-out samples"
    # Calls of earlier versions did not record which settings competed.
    why = WHY_STOPPED.get(str(call.get("halving")), WHY_STOPPED[ALL])
    columns = [
        Column(va, f"{of_what}, {HOW_SCORED[scored_by(cells)]}, with the chosen settings"),
        Column("points", "points of the grid that were tried"),
        Column("stopped", f"points that were stopped early, {why}"),
        Column("rounds", "rounds that all points have trained together, with all seeds"),
    ]
    # The accuracy of the comparison that corresponds to that by which settings were chosen.
    asked = "pa_final" if criterion == "va_personal" else "ga_final"
    shown, recommended = _recommended(final, asked)
    order = [*recommended, *(row.name for row in rows)]
    best_first = sorted(chosen, key=lambda method: order.index(name_of(method)))
    config = _config(directory, runs)
    title = _title(text.listed([name_of(name) for name in by_method], 4), config)
    return {
        "title": title,
        "terms": _terms(title, config, va),
        "sentence": f"{text.plural(len(by_method), 'method')} tuned with "
        f"{text.plural(len(cells), 'point')} in total. Every choice was made on samples that "
        "clients held out; no test data had a part in it.",
        "answers": [pair for each in final.answers[:1] for pair in wording.sentences(each)]
        + (_highest(rows, va, bool(final.answers)) if chosen else []),
        "findings": findings.advised_once([*found, *final.findings]),
        "table": Table(columns, rows),
        "commands": [*_commands(directory, runs, best_first, recommended)],
        "flags": [],
        "link": pages.address(report, page) if report.is_file() else "",
        "points_title": "Chosen settings",
        "all_points": Table(
            [columns[0], Column("rounds", "rounds of its runs, with all seeds")], every
        ),
        "first": "method",
        "accuracies": [shown.mean(key) for key in _FINAL],
        "finals": final.results,
        # The method of these accuracies first.
        "what": text.listed(
            [name_of(m) for m in sorted(by_method, key=lambda m: m not in shown.methods)], 4
        ),
        "problems": directory.problems,
    }


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
    pattern: str,
    methods: Sequence[str],
    recommended: Mapping[str, Models],
) -> Iterator[Command]:
    """The commands of those of the methods whose flagfiles are there; `pattern` of final runs."""
    for method in methods:
        if Path(method).name != method:
            continue
        name = f"{BEST}/{method}.flags"
        if directory.attempt(name, directory.text, name):
            models = recommended.get(name_of(method))
            yield _command(directory, pattern, method, name, f"best_{method}", models)


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
    pattern = f"{COMPARISON}/*/seed_*/{CONFIG}"
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
        config = _config(directory, pattern, method)
        courses = {row["settings"]: _course(row) for row in rows}
        edges[name_of(method)] = findings.of_choice(scores, settings, config, criterion, courses)
        trained = {point: score if point in ended else None for point, score in scores.items()}
        choices.append((name_of(method), settings, trained))
    places = [glob.escape(_place(method, settings)) for method, settings in chosen.items()]
    chose = [[*directory.folders(f"{each}/seed_*/{CONFIG}")] for each in places]
    folders = [sorted(each, key=_seed) for each in chose if each]
    samples = max((by_client.held_out(each[0]) for each in folders), default=0)
    samples = samples or _held_out(directory, pattern)
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
