"""Sweeps: runs for every point of a grid of settings; the best is chosen on held-out samples."""

from __future__ import annotations

import math
import os
import statistics
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from etils import epy

from tff_pcdd import files, findings, measures, stages, tables, text
from tff_pcdd.data import DataConfig
from tff_pcdd.errors import SettingError
from tff_pcdd.findings import Finding
from tff_pcdd.results import by_client, grid_points
from tff_pcdd.results.reading import Directory
from tff_pcdd.studies import study
from tff_pcdd.studies.parallel import ParallelOptions
from tff_pcdd.studies.study import StudyRun, results_of
from tff_pcdd.training import ExperimentConfig, RunOptions, signature, start
from tff_pcdd.training.file_names import SUMMARY, SWEEP_RUNS, SWEEP_TABLE

# Matplotlib and SciPy are not needed before the last run.
with epy.lazy_imports():
    from tff_pcdd.studies import comparison_tables, sweep_plots
    from tff_pcdd.training import plots

_TABLE, PICTURE = "sweep.md", "sweep.png"
FLAGS = "best.flags"
_FILES = (SWEEP_TABLE, _TABLE, PICTURE, FLAGS)
# The column of sweep.csv with the accuracy on held-out samples that decides.
CRITERION = "criterion"

# What the accuracy in the tables is, for each accuracy by which a point may be chosen.
NOTES = {
    "va": "VA: accuracy of the global model on the samples that all clients held out; if there is "
    "no global model (†), the mean over clients of the personal model's accuracy on all of them",
    "va_balanced": "VA, balanced: mean over classes of the global model's accuracy on the samples "
    "of a class that all clients held out; if there is no global model (†), the mean over clients "
    "and classes of the personal model's accuracy on all of them",
    "va_personal": "VA, personal: mean over clients of the personal model's accuracy, after its "
    "local epochs, on the samples that the client held out",
}


class Sweep(NamedTuple):
    """The result of a sweep.

    Attributes:
        report: the table and the findings, for a terminal.
        best: the chosen settings; None if every point lacks a run.
        failures: a line for each run that failed.
    """

    report: str
    best: Mapping[str, str] | None
    failures: list[str]


def sweep(
    points: Sequence[Point],
    output_dir: str | os.PathLike,
    options: RunOptions | None = None,
    *,
    criterion: str = "va",
    overwrite: bool = False,
    parallel: ParallelOptions | None = None,
    report: bool = True,
) -> Sweep:
    """Runs every point of a grid with every seed and chooses the best on held-out samples.

    Args:
        points: the points of the grid; all have the same settings in the same order.
        output_dir: the directory of a folder SETTING=VALUE,…/seed_N for each run, sweep.csv, .md
            and .png, best.flags with the chosen settings, and failures.txt if runs failed.
        options: how and where the experiments are computed.
        criterion: one of `measures.best_rounds()`.
        overwrite: delete earlier results in these folders and start again.
        parallel: how many runs are computed at the same time; by default one, in this process.
        report: write report.html; if that fails, warn.

    Raises:
        SettingError: no samples are held out, two points or seeds are equal, or the first run
            cannot be computed.
        DataError: the data of the first experiment cannot be read.
        RuntimeStartError: the runtime cannot be started.
        WriteError: a result cannot be written. The next call continues from there.
    """
    directory = Path(output_dir)
    check_held_out((config.data for p in points for config in p.configs), load=True)
    with study.computer(options, parallel) as computer:
        runs = study.run_all(
            plan(points, directory, overwrite=overwrite),
            directory,
            computer,
            overwrite=overwrite,
            after_each=lambda runs: _write_csv(directory, points, runs, criterion),
        )
    outcomes = _outcomes(points, runs, criterion)
    best = choose(outcomes)
    config = points[0].configs[0]
    title = f"{config.method_title} on {comparison_tables.common_setting(runs)}"
    # The first run is of the first point.
    samples = by_client.held_out(runs[0].folder)
    found = [
        *of_choice(outcomes, best, criterion, samples),
        *of_earlier(directory, "*", [point.name for point in points]),
    ]
    lines = table(outcomes, best, criterion)
    files.write_text(directory / _TABLE, _document(title, lines, found, criterion))
    # Those of an earlier sweep in this directory would say what this one has not found.
    for name in (PICTURE, FLAGS):
        files.remove(directory / name)
    if any(outcome.validation for outcome in outcomes):
        stages.enter("drawing the picture")
        plots.save(sweep_plots.draw(outcomes, best, title)[0], directory / PICTURE)
    stages.leave()
    if best is not None:
        write_flags(directory / FLAGS, points[0].configs[0].algorithm, best.point)
    if report:
        start.write_report(sweep_dir=directory)
    chosen = best.point.settings if best else None
    return Sweep(_printed(title, lines, found), chosen, study.failures(runs))


def _document(
    title: str, lines: Sequence[Sequence[str]], found: Sequence[Finding], criterion: str
) -> str:
    """The text of sweep.md."""
    notes = [finding.line for finding in found]
    note = (
        f"{NOTES[criterion]}, in the best round of each run. GA and PA: accuracies on test data in "
        "that round; nothing is chosen by them. In %, mean ± sample standard deviation over seeds "
        "(n - 1 in the denominator)."
    )
    return "\n\n".join([f"# {title}", tables.table(lines), *notes, note]) + "\n"


def _printed(title: str, lines: Sequence[Sequence[str]], found: Sequence[Finding]) -> str:
    """What a program prints; test accuracies are left out first."""
    width = len(lines[0])
    narrow = tables.narrow(lines, [width - 2, width - 3, width - 4, width - 1])
    of_choice = [findings.printed(found)] if found else []
    return "\n\n".join([tables.wrapped(title), narrow, *of_choice])


def of_choice(
    outcomes: Sequence[Outcome], best: Outcome | None, criterion: str, samples: int = 0
) -> list[Finding]:
    """What may be wrong with the choice; `samples` are held out with each seed, 0 if unknown."""
    if best is None:
        return []
    scores = {each.point.name: each.score if each.complete else None for each in outcomes}
    chosen = best.point.name
    return [
        *findings.of_choice(scores, chosen, best.point.configs[0], criterion),
        *findings.of_noise(
            [("", chosen, scores)], samples, [config.seed for config in best.point.configs]
        ),
    ]


def of_earlier(
    directory: Path, pattern: str, tried: Collection[str], stopped: Collection[str] = ()
) -> Iterator[Finding]:
    """Points that earlier sweeps in a directory have trained to the end, but that cannot be chosen.

    Args:
        directory: the directory of the sweep.
        pattern: the folders of points in it.
        tried: those of the last sweep.
        stopped: those of them that it has stopped early.
    """
    found = Directory(directory).folders(f"{pattern}/seed_*/{SUMMARY}")
    points = {folder.parent.relative_to(directory).as_posix() for folder in found}
    if others := sorted(points.difference(tried)):
        yield Finding(
            "left out",
            f"{text.plural(len(others), 'finished point')} in this directory that the last sweep "
            f"here did not try: {_listed(others)}.",
            "Next: name their values in --grid too; no finished run is repeated.",
        )
    if overtaken := sorted(points.intersection(stopped)):
        yield Finding(
            "overtaken",
            f"{text.plural(len(overtaken), 'point')} that an earlier sweep here has trained to the "
            "end cannot be chosen any more, because the last sweep has stopped early what was "
            f"behind other points of its grid: {_listed(overtaken)}.",
            "Next: the same command with --rungs=, which stops no point; no finished run is "
            "repeated.",
        )


def _listed(points: Sequence[str]) -> str:
    return text.listed([text.name_of(point.removeprefix(f"{SWEEP_RUNS}/")) for point in points])


def check_held_out(configs: Iterable[DataConfig], *, load: bool = False) -> None:
    """Raises a SettingError unless all runs hold out samples, on which a sweep chooses.

    With `load`, data sets that may have validation samples of their own are loaded.
    """
    for config in {repr(config): config for config in configs}.values():
        found = config.may_hold_out
        if load and not config.validation_fraction:
            found = any(client.validation.size for client in config.build().clients)
        if not found:
            reason = "a sweep chooses on held-out samples; set a share such as 0.2"
            raise SettingError("validation_fraction", 0, reason)


def check_seeds(setting: str, configs: Sequence[ExperimentConfig]) -> None:
    """Raises a SettingError if two experiments of a point have one seed; the setting lists them."""
    seeds = [config.seed for config in configs]
    if len({*seeds}) < len(seeds):
        raise SettingError(setting, ",".join(map(str, seeds)), "name each seed once")


def plan(
    points: Sequence[Point], output_dir: str | os.PathLike, *, overwrite: bool = False
) -> list[StudyRun]:
    """Lists the runs of a sweep without computing them; takes the arguments of `sweep`.

    Raises:
        SettingError: as `sweep`, or a folder contains something else.
    """
    configs = [config for point in points for config in point.configs]
    check_held_out(config.data for config in configs)
    if len({point.name for point in points}) < len(points):
        raise SettingError("grid", None, "name each value once")
    for point in points:
        check_seeds("seeds", point.configs)
    directory = Path(output_dir)
    runs = [run for point in points for run in point.runs(directory / point.name, point.name)]
    study.check(runs, directory, holds="sweep", known=_FILES, overwrite=overwrite)
    return runs


def _outcomes(points: Sequence[Point], runs: Sequence[StudyRun], criterion: str) -> list[Outcome]:
    outcomes, remaining = [], iter(runs)
    for point in points:
        group = [next(remaining) for _ in point.configs]
        found = results_of(group)
        va, rounds, ga, pa = grid_points.measured(found, criterion)
        outcomes.append(Outcome(point, va, rounds, ga, pa, len(group), len(found.diverged)))
    return outcomes


def table(outcomes: Sequence[Outcome], best: Outcome | None, criterion: str) -> list[list[str]]:
    """The lines of a table with a row for each point, the best one in bold."""
    headings = [measures.heading(criterion), "best round", "GA there", "PA there", "seeds"]
    lines = [[*outcomes[0].point.settings, *headings]]
    for outcome in outcomes:
        measured = (outcome.validation, outcome.rounds, outcome.ga, outcome.pa)
        shown = grid_points.cells(measured, outcome.seeds, outcome.diverged)
        cells = [*outcome.point.settings.values(), *(cell for cell, _ in shown)]
        lines.append([f"**{cell}**" for cell in cells] if outcome is best else cells)
    return lines


def _write_csv(
    directory: Path, points: Sequence[Point], runs: Sequence[StudyRun], criterion: str
) -> None:
    run_points = [point for point in points for _ in point.configs]
    # By name, because settings such as `rounds` have the names of what was measured.
    rows = [
        {"settings": point.name, **point.settings, **run.values, CRITERION: criterion}
        for point, run in zip(run_points, runs, strict=True)
        if run.summary
    ]
    study.write_csv(directory / SWEEP_TABLE, rows)


def write_flags(path: Path, method: str, point: Point) -> None:
    """A flagfile with the method and the chosen settings."""
    flags = {"algorithm": method, **point.settings}
    signature.write_signed(path, "".join(f"--{name}={value}\n" for name, value in flags.items()))


# The points of a sweep and their results.


class Point(NamedTuple):
    """A combination of settings that a sweep tries.

    Attributes:
        settings: the values of the grid's settings, as written on the command line.
        configs: the experiments with these settings, one for each seed.
        finals: what is run with these settings if they are chosen: experiments with other seeds.
    """

    settings: Mapping[str, str]
    configs: Sequence[ExperimentConfig]
    finals: Sequence[ExperimentConfig] = ()

    @property
    def name(self) -> str:
        return ",".join(f"{flag}={value}" for flag, value in self.settings.items())

    def distance(self) -> tuple[int, float]:
        """How far the settings are from the defaults.

        Returns:
            The number of settings that differ from their default, and the sum over them of the
            absolute logarithm of the ratio to it; of numbers that are not positive, of the
            difference. Settings whose default is not known, such as labels of points in Python, do
            not count.
        """
        number, total = 0, 0.0
        for name in self.settings:
            try:
                value = self.configs[0].to_settings()[name]
                default = self.configs[0].default_of(name)
            except (KeyError, SettingError):
                continue
            if value != default:
                number += 1
                total += _apart(value, default)
        return number, total

    def runs(self, folder: Path, name: str) -> list[StudyRun]:
        """The runs of its experiments, before their first round."""
        return [
            StudyRun(config, folder / f"seed_{config.seed}", f"{name} seed {config.seed}")
            for config in self.configs
        ]


def _apart(value: Any, default: Any) -> float:
    """How far a number is from another one, by their ratio if it has a logarithm; 0 of others."""
    if not (isinstance(value, int | float) and isinstance(default, int | float)):
        return 0.0
    if value > 0 and default > 0:
        return abs(math.log(value / default))
    return float(abs(value - default))


class Outcome(NamedTuple):
    """The results of a point's runs.

    Attributes:
        point: its settings and experiments.
        validation: the accuracy on held-out samples in the best round of each finished run.
        rounds, ga, pa: the best rounds, and the test accuracies in them, if they were measured.
        seeds: the number of runs that were planned.
        diverged: the number of finished runs that diverged, and so have no best round.
    """

    point: Point
    validation: list[float]
    rounds: list[int]
    ga: list[float]
    pa: list[float]
    seeds: int
    diverged: int = 0

    @property
    def complete(self) -> bool:
        return len(self.validation) == self.seeds

    @property
    def score(self) -> float:
        return statistics.fmean(self.validation)


def choose(outcomes: Sequence[Outcome]) -> Outcome | None:
    """The point with the best mean over seeds, or None; points with missing runs do not count.

    Of equal points, the nearest to the defaults is chosen, and of these the first.
    """
    complete = [outcome for outcome in outcomes if outcome.complete]
    return min(complete, key=lambda each: rank(each.score, each.point.distance()), default=None)


def rank(score: float | None, distance: tuple[int, float]) -> tuple[float, int, float]:
    """The key by which points are sorted, the best first; scores are equal up to rounding.

    Args:
        score: the accuracy on held-out samples, in %; None for none.
        distance: as of `Point.distance`.

    Example:
        >>> rank(70.0, (2, 0.5)) < rank(60.0, (0, 0.0)), rank(60.0, (1, 0.7)) < rank(60.0, (1, 2.3))
        (True, True)
    """
    return -round(score or 0.0, 6), *distance
