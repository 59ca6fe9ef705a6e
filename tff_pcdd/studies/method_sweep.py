"""Sweeps over methods: each is tuned by the same rule, then compared on other seeds.

The settings of every method are chosen on held-out samples (see `tuning`). Then the methods are
trained with the chosen settings and seeds that had no part in the choice, and compared like in
`comparison`. The final runs hold out the same share of samples, for all methods alike: settings are
chosen for that number of samples, and the round that is best on held-out samples is known.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from etils import epy

from tff_pcdd import directories, files, stages
from tff_pcdd.errors import DamagedFileError, OtherRunError, SettingError
from tff_pcdd.findings import Finding
from tff_pcdd.results.comparison_directory import Tuning
from tff_pcdd.results.reading import Directory
from tff_pcdd.studies import comparison, method_sweep_tables, study, tuning
from tff_pcdd.studies.comparison import Comparison
from tff_pcdd.studies.parallel import ParallelOptions
from tff_pcdd.studies.study import StudyRun
from tff_pcdd.studies.sweeps import (
    PICTURE,
    Point,
    check_held_out,
    check_seeds,
    of_earlier,
    write_flags,
)
from tff_pcdd.studies.table_options import TableOptions
from tff_pcdd.studies.tuning import Halving, Tuned
from tff_pcdd.training import ExperimentConfig, RunOptions, manifests, start
from tff_pcdd.training.file_names import CONFIG, SWEEP_RUNS, SWEEP_TABLE
from tff_pcdd.training.recovery import finished_summary
from tff_pcdd.training.run_directory import check_directory, path_settings

# Matplotlib is not needed before the last run.
with epy.lazy_imports():
    from tff_pcdd.studies import method_sweep_plots
    from tff_pcdd.training import plots

# The folders of the comparison of the final runs, and of a flagfile for each method.
COMPARISON, BEST = "comparison", "best"
# The folders of points.
POINTS = f"{SWEEP_RUNS}/*/*"
# The folder of final runs with settings that were chosen once, but are not any more.
EARLIER = "earlier_choices"
_TABLE = "sweep.md"
# What each call of the program has recorded: a line of JSON.
CALLS = "calls.jsonl"
_FILES = (SWEEP_TABLE, _TABLE, PICTURE, CALLS)
# What the columns of sweep.csv with the accuracies after the rungs begin with.
AFTER = "va_after_"


class MethodSweep(NamedTuple):
    """The result of a sweep over methods.

    Attributes:
        report: the main tables, the answer and the findings, for a terminal.
        chosen: the chosen settings of each method, without those for which nothing could be chosen.
        failures: a line for each run that failed.
    """

    report: str
    chosen: Mapping[str, Mapping[str, str]]
    failures: list[str]


def sweep_methods(
    points: Mapping[str, Sequence[Point]],
    output_dir: str | os.PathLike,
    options: RunOptions | None = None,
    *,
    criterion: str = "va",
    halving: Halving | None = None,
    overwrite: bool = False,
    parallel: ParallelOptions | None = None,
    tables: TableOptions | None = None,
    report: bool = True,
) -> MethodSweep:
    """Chooses the settings of every method on held-out samples and compares the methods.

    A finished run is not repeated, and an interrupted one is resumed. If a run fails, the others
    continue; nothing is chosen for its method until the next call has repeated the run.

    Args:
        points: for each method, the points of its grid with their `finals`.
        output_dir: the directory of sweep.md (the chosen settings, and the results with them),
            sweep.csv (a row for each point of each grid), sweep.png, best/METHOD.flags, the folder
            comparison/ with the final runs and the files that `compare` writes, and the folder
            tuning/METHOD/SETTING=VALUE,…/seed_N with the other runs.
        options: how and where the experiments are computed.
        criterion: the accuracy on held-out samples that decides, one of `measures.best_rounds()`:
            its mean over the last three evaluations, or in a sweep that an earlier version began,
            its maximum. Of equal points, the nearest to the defaults is chosen.
        halving: when settings are stopped early.
        overwrite: delete earlier results in these folders and start again.
        parallel: how many runs are computed at the same time; by default one, in this process.
        tables: what the tables of the final comparison show.
        report: write report.html for the sweep, its comparison and the final runs; if that fails,
            warn.

    Raises:
        SettingError: no samples are held out, runs would share a folder, a final run has a seed of
            the choice, or the first run cannot be computed.
        DataError: the data of the first experiment cannot be read.
        RuntimeStartError: the runtime cannot be started.
        WriteError: a result cannot be written. The next call continues from there.
    """
    directory = Path(output_dir)
    halving = halving or Halving()
    tuned = plan(points, directory, overwrite=overwrite)
    every = [point for grid in points.values() for point in grid]
    check_held_out((config.data for p in every for config in p.configs), load=True)
    tuning_seeds = {config.seed for point in every for config in point.configs}
    tuned_with = Tuning(tuning_seeds, {name for point in every for name in point.settings})
    # Between rungs, the processes that compute runs stay, with what they have imported.
    with study.computer(options, parallel) as computer:
        tuned = tuning.tune(
            tuned,
            directory,
            computer,
            criterion=criterion,
            halving=halving,
            overwrite=overwrite,
            after_each=lambda tuned: _write_csv(directory, tuned, chosen=False),
        )
        _write_csv(directory, tuned, chosen=True)
        chosen = {method.method: method.best.point for method in tuned if method.best is not None}
        _write_flags(directory, chosen)
        finals = [config for point in chosen.values() for config in point.finals]
        compared, found = _compare(
            finals, directory, computer, tuned_with, overwrite=overwrite, tables=tables
        )
    runs = _finished(finals, directory / COMPARISON) if finals else []
    first = next(iter(points.values()))[0].configs[0]
    of_choice = _of_choice(directory, tuned, criterion)
    document = method_sweep_tables.document(
        first, tuned, runs, criterion, of_choice, found, among=halving.among
    )
    files.write_text(directory / _TABLE, document)
    stages.enter("drawing the picture")
    plots.save(method_sweep_plots.draw(tuned, first.describe())[0], directory / PICTURE)
    stages.leave()
    if report and chosen:
        start.write_report(comparison_dir=directory / COMPARISON)
        start.write_report(sweep_dir=directory)
    return MethodSweep(
        method_sweep_tables.report(first, tuned, criterion, compared.report, of_choice),
        {method: point.settings for method, point in chosen.items()},
        [*study.failures(_runs(tuned)), *compared.failures],
    )


def plan(
    points: Mapping[str, Sequence[Point]], output_dir: str | os.PathLike, *, overwrite: bool = False
) -> list[Tuned]:
    """Lists the trials of a sweep over methods without computing them; arguments as there.

    Raises:
        SettingError: as `sweep_methods`, or a folder contains something else.
    """
    every = [point for grid in points.values() for point in grid]
    configs = [config for point in every for config in (*point.configs, *point.finals)]
    check_held_out(config.data for config in configs)
    for point in every:
        check_seeds("seeds", point.configs)
        check_seeds("final_seeds", point.finals)
        seeds, finals = ([config.seed for config in part] for part in (point.configs, point.finals))
        if shared := sorted({*seeds} & {*finals}):
            reason = f"settings are chosen with seed {shared[0]}; name other seeds"
            raise SettingError("final_seeds", ",".join(map(str, finals)), reason)
    directory = Path(output_dir)
    scored_by = tuning.LAST if overwrite else _scored_by(directory)
    tuned = tuning.plan(points, directory, scored_by)
    runs = _runs(tuned)
    if len({run.folder for run in runs}) < len(runs):
        raise SettingError("grid", None, "name each method and each value once")
    study.check(runs, directory, holds="sweep", known=_FILES, overwrite=overwrite)
    directories.refuse_links(directory, (BEST, COMPARISON, EARLIER), inside=False)
    return tuned


def _scored_by(directory: Path) -> str:
    """By what points are compared, as of `tuning.Trial`: in a sweep that is repeated, as before."""
    try:
        header, rows = Directory(directory).table(SWEEP_TABLE)
    except (FileNotFoundError, DamagedFileError):
        return tuning.LAST
    return tuning.scored_by(dict(zip(header, row, strict=True)) for row in rows)


def _runs(tuned: Sequence[Tuned]) -> list[StudyRun]:
    return [run for method in tuned for trial in method.trials for run in trial.runs]


def _compare(
    finals: Sequence[ExperimentConfig],
    directory: Path,
    computer: study.Computer,
    tuned_with: Tuning,
    *,
    overwrite: bool,
    tables: TableOptions | None,
) -> tuple[Comparison, Sequence[Finding]]:
    """Computes the final runs, if anything was chosen; returns what `comparison.compute` does."""
    if not finals:
        return Comparison("", []), ()
    if not overwrite:
        _set_aside(finals, directory)
    place = directory / COMPARISON
    return comparison.compute(
        finals, place, computer, overwrite=overwrite, tuning=tuned_with, tables=tables
    )


def _of_choice(directory: Path, tuned: Sequence[Tuned], criterion: str) -> list[Finding]:
    """What may be wrong with the choices, and points that could not be chosen."""
    tried = {
        trial.runs[0].folder.parent.relative_to(directory).as_posix(): trial
        for method in tuned
        for trial in method.trials
    }
    stopped = [name for name, trial in tried.items() if not (trial.active or trial.diverged)]
    earlier = of_earlier(directory, POINTS, tried, stopped)
    return [*method_sweep_tables.of_choice(tuned, criterion), *earlier]


def _set_aside(configs: Sequence[ExperimentConfig], directory: Path) -> None:
    """Moves final runs whose settings are no longer chosen, and those that are chosen again back.

    The choice changes if a sweep is repeated with more rounds or with other points.
    """
    for config in configs:
        part = Path(config.algorithm, f"seed_{config.seed}")
        current = directory / COMPARISON / part
        try:
            check_directory(current, config, overwrite=False, shared=True)
        except OtherRunError:
            # A process that computes it would not notice that it was moved.
            directories.refuse_locked(current)
            aside = _aside(directory, files.read_json(current / CONFIG)) / part
            files.make_directory(aside.parent)
            if aside.exists():
                files.remove(aside)
            files.rename(current, aside)
        earlier = _aside(directory, config.to_settings()) / part
        if earlier.exists() and not current.exists():
            files.make_directory(current.parent)
            files.rename(earlier, current)


def _aside(directory: Path, settings: Mapping[str, Any]) -> Path:
    """Where final runs with these settings are while others are chosen."""
    # The digest leaves out where data and weights are, in which points may differ.
    places = {f"place of {n}": settings[n] for n in path_settings() if settings.get(n) is not None}
    return directory / EARLIER / manifests.settings_digest({**settings, **places})[:12]


def _finished(configs: Sequence[ExperimentConfig], directory: Path) -> list[StudyRun]:
    """The final runs with their summaries."""
    return [
        dataclasses.replace(run, summary=finished_summary(run.folder, run.config))
        for run in comparison.plan(configs, directory)
    ]


def _write_csv(directory: Path, tuned: Sequence[Tuned], *, chosen: bool) -> None:
    """A row for each point, without any accuracy on test data; `chosen` if trials are complete."""
    planned = tuned[0].trials[0].point.configs[0].training.rounds
    every = {number for method in tuned for trial in method.trials for number in trial.scores}
    rows = [
        {
            "algorithm": method.method,
            "settings": trial.point.name,
            "va": tuning.known_score(trial),
            "rounds": trial.rounds,
            "stopped_after": trial.stopped,
            "diverged": trial.diverged,
            "failed": trial.failed,
            tuning.SCORE: trial.scored_by,
            **{f"{AFTER}{n}": trial.scores.get(n) for n in sorted(every - {planned})},
            "chosen": chosen and trial is method.best,
        }
        for method in tuned
        for trial in method.trials
    ]
    study.write_csv(directory / SWEEP_TABLE, rows)


def _write_flags(directory: Path, chosen: Mapping[str, Point]) -> None:
    """A flagfile for each method with the chosen settings, and for no other method."""
    files.make_directory(directory / BEST)
    files.remove_leftovers(directory / BEST)
    for path in sorted((directory / BEST).glob("*.flags")):
        if path.stem not in chosen:
            files.remove(path)
    for method, point in chosen.items():
        write_flags(directory / BEST / f"{method}.flags", method, point)
