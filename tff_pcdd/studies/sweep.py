"""A grid of settings, the best of which is chosen on held-out samples."""

from __future__ import annotations

import os
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from tff_pcdd import files
from tff_pcdd.options import OptionError
from tff_pcdd.training import campaign, plots, sweep_plots, tables
from tff_pcdd.training.campaign import Run
from tff_pcdd.training.config import ExperimentConfig, RunOptions

_CSV = "sweep.csv"

# What a point may be chosen by: accuracy on held-out samples, and the round in which it was best.
CRITERIA = {"va": "best_round", "va_personal": "best_personal_round"}

_NOTES = {
    "va": "VA: the global model on what all clients held out of their training samples",
    "va_personal": "VA: mean over clients of the personal model, after its local epochs, on what "
    "the client held out of its training samples",
}


class Point(NamedTuple):
    """Settings to be tried.

    Attributes:
        settings: the value of every flag of the grid, as a command line has it.
        configs: the experiments that have them, one for each seed.
    """

    settings: Mapping[str, str]
    configs: Sequence[ExperimentConfig]

    @property
    def name(self) -> str:
        return ",".join(f"{flag}={value}" for flag, value in self.settings.items())


class Outcome(NamedTuple):
    """What the runs of a point came to, on average over seeds.

    Attributes:
        point: its settings.
        validation: accuracies on held-out samples in each run's best round.
        rounds, ga, pa: those rounds, and test accuracies after them, where they were measured.
        seeds: how many runs were to be made.
    """

    point: Point
    validation: list[float]
    rounds: list[int]
    ga: list[float]
    pa: list[float]
    seeds: int

    @property
    def complete(self) -> bool:
        return len(self.validation) == self.seeds

    @property
    def score(self) -> float:
        return statistics.fmean(self.validation)


class Sweep(NamedTuple):
    """What a sweep hands back.

    Attributes:
        report: the table, as markdown.
        best: the settings that were chosen; None where no point has all of its runs.
        failures: a line for each run that failed.
    """

    report: str
    best: Mapping[str, str] | None
    failures: list[str]


def sweep(
    points: Sequence[Point],
    output_dir: str | os.PathLike,
    run: RunOptions | None = None,
    *,
    criterion: str = "va",
    overwrite: bool = False,
) -> Sweep:
    """Runs every point of a grid with every seed and chooses the best on held-out samples.

    Args:
        points: what is tried; their settings name the same flags in the same order.
        output_dir: gets FLAG=VALUE,…/seed_N for each run, sweep.csv, .md and .png, best.flags with
            the chosen settings, and, where runs failed, failures.txt.
        run: how and where they are computed.
        criterion: a key of `CRITERIA`.
        overwrite: repeat what the directory holds already.

    Raises:
        OptionError: nothing is held out, two points are the same, or the first cannot be run.
        data.DataError: the first experiment's data cannot be read.
        runtime.RuntimeStartError: the runtime cannot be started.
    """
    directory = Path(output_dir)
    runs = campaign.run_all(
        plan(points, directory, overwrite=overwrite),
        directory,
        run,
        overwrite=overwrite,
        after_each=lambda runs: _write_csv(directory, points, runs),
    )
    outcomes = _outcomes(points, runs, criterion)
    best = choose(outcomes)
    title = f"{points[0].configs[0].algorithm} on {plots.describe(points[0].configs[0])}"
    report = table(outcomes, best)
    note = f"{_NOTES[criterion]}, in the best round of each run; GA and PA after that round, on "
    note += "test data, which nothing is chosen on. In %, mean ± standard deviation over seeds."
    files.write_text(directory / "sweep.md", f"# {title}\n\n{report}\n\n{note}\n")
    if any(outcome.validation for outcome in outcomes):
        plots.save(sweep_plots.draw(outcomes, best, title)[0], directory / "sweep.png")
    if best is not None:
        _write_flags(directory / "best.flags", best.point)
    return Sweep(
        f"{title}\n\n{report}", best.point.settings if best else None, campaign.failures(runs)
    )


def plan(
    points: Sequence[Point], output_dir: str | os.PathLike, *, overwrite: bool = False
) -> list[Run]:
    """The runs of a sweep, none of them computed; takes the arguments of `sweep`.

    Raises:
        OptionError: nothing is held out, two points are the same, or a folder cannot take its run.
    """
    if not all(config.validation_fraction for point in points for config in point.configs):
        raise OptionError(
            "--validation_fraction=0: a sweep chooses on held-out samples, give a share as 0.2"
        )
    if len({point.name for point in points}) < len(points):
        raise OptionError("--grid: name each value once")
    directory = Path(output_dir)
    runs = []
    for point in points:
        for config in point.configs:
            folder = directory / point.name / f"seed_{config.seed}"
            runs.append(Run(config, folder, f"{point.name} seed {config.seed}"))
    campaign.check(runs, directory, holds="sweep", known={_CSV}, overwrite=overwrite)
    return runs


def _outcomes(points: Sequence[Point], runs: Sequence[Run], criterion: str) -> list[Outcome]:
    chosen = CRITERIA[criterion]
    outcomes, remaining = [], iter(runs)
    for point in points:
        group = [next(remaining) for _ in point.configs]
        summaries = [run.summary for run in group if run.summary]

        def values(key, summaries=summaries):
            return [s[key] for s in summaries if s.get(key) is not None]

        outcomes.append(
            Outcome(
                point,
                validation=values(f"{criterion}_best"),
                rounds=values(chosen),
                ga=values(f"ga_at_{chosen}"),
                pa=values(f"pa_at_{chosen}"),
                seeds=len(point.configs),
            )
        )
    return outcomes


def choose(outcomes: Sequence[Outcome]) -> Outcome | None:
    """The best on average over seeds, the first of equals; points that lack runs cannot win."""
    complete = [outcome for outcome in outcomes if outcome.complete]
    return max(complete, key=lambda outcome: outcome.score, default=None)


def table(outcomes: Sequence[Outcome], best: Outcome | None) -> str:
    """A row for each point, that of the best in bold."""
    lines = [[*outcomes[0].point.settings, "VA", "best round", "GA there", "PA there", "seeds"]]
    for outcome in outcomes:
        finished = len(outcome.validation)
        seeds = str(finished) if outcome.complete else f"{finished} of {outcome.seeds}"
        cells = [
            *outcome.point.settings.values(),
            tables.spread(outcome.validation, 1),
            tables.spread(outcome.rounds, 0),
            tables.spread(outcome.ga, 1),
            tables.spread(outcome.pa, 1),
            seeds,
        ]
        lines.append([f"**{cell}**" for cell in cells] if outcome is best else cells)
    return tables.markdown(lines)


def _write_csv(directory: Path, points: Sequence[Point], runs: Sequence[Run]) -> None:
    settings = [point.settings for point in points for _ in point.configs]
    rows = [
        {**flags, **run.summary} for flags, run in zip(settings, runs, strict=True) if run.summary
    ]
    campaign.write_csv(directory / _CSV, rows)


def _write_flags(path: Path, point: Point) -> None:
    """A flagfile with the method and the chosen settings."""
    flags = {"algorithm": point.configs[0].algorithm, **point.settings}
    files.write_text(path, "".join(f"--{name}={value}\n" for name, value in flags.items()))
