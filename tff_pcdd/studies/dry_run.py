"""Dry runs: planned runs are checked and described without loading data.

What the runs would refuse raises the same SettingError here.

A dry run makes the checks that a run makes before it loads data: settings, directories, whether the
backbone accepts the inputs, the file of pretrained weights, and whether the aggregator accepts what
the clients of the method send. Other problems appear only in the run: samples that cannot be
divided as requested, or a device that is missing.
"""

from __future__ import annotations

import operator
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from tff_pcdd import heavy, stages, text
from tff_pcdd.errors import DataError, SettingError
from tff_pcdd.experiment import planning, refusals
from tff_pcdd.settings import describe as describe_settings
from tff_pcdd.settings import flatten
from tff_pcdd.studies import comparison, method_sweep, sweeps, tuning
from tff_pcdd.studies.study import StudyRun
from tff_pcdd.studies.sweeps import Point
from tff_pcdd.studies.tuning import Halving
from tff_pcdd.training import ExperimentConfig, earlier_data, warm_start
from tff_pcdd.training.recovery import finished_summary, recorded
from tff_pcdd.training.run_directory import check_directory

# Headings of the settings that say what is trained and how, and those among them that the line of a
# run shows anyway: the number of parameters includes the projection.
_GROUPS = ("Model", "Training", "Aggregation")
_SHOWN = ("model", "projection_dim", "rounds")


def train(
    config: ExperimentConfig, output_dir: str | os.PathLike, *, overwrite: bool = False
) -> str:
    """Checks a run and describes it in one line; takes the arguments of `run_experiment`."""
    check_directory(Path(output_dir), config, overwrite)
    warm_start.check([(config, Path(output_dir))], overwrite=overwrite)
    return f"{describe(config)}{_progress(config, 0 if overwrite else _done(config, output_dir))}"


def compare(
    configs: Sequence[ExperimentConfig] | Mapping[str, Sequence[ExperimentConfig]],
    output_dir: str | os.PathLike,
    *,
    overwrite: bool = False,
) -> str:
    """Checks and describes the runs of a comparison; takes the arguments of `compare`.

    The last line counts them and their rounds, or those that are left.
    """
    runs = comparison.plan(configs, output_dir, overwrite=overwrite)
    done = _all_done(runs, overwrite)
    return f"{_describe_all([('', run.config) for run in runs], done)}{_total(runs, done)}"


def sweep(
    points: Sequence[Point], output_dir: str | os.PathLike, *, overwrite: bool = False
) -> str:
    """As `compare`, for a sweep; takes the arguments of `sweep`."""
    runs = sweeps.plan(points, output_dir, overwrite=overwrite)
    done = _all_done(runs, overwrite)
    names = [f"{point.name}: " for point in points for _ in point.configs]
    planned = list(zip(names, (run.config for run in runs), strict=True))
    return f"{_describe_all(planned, done)}{_total(runs, done)}"


def _done(config: ExperimentConfig, directory: str | os.PathLike) -> int:
    """The rounds of a run that are not computed again: all of one that has finished."""
    directory = Path(directory)
    try:
        if finished_summary(directory, config) is not None:
            earlier_data.warn_of_results(directory, config)
            return config.training.rounds
        record = recorded(directory)
    except (DataError, SettingError):  # the run itself says what is damaged
        return 0
    return 0 if record is None else record.round


@earlier_data.listed_once()
def _all_done(runs: Iterable[StudyRun], overwrite: bool) -> list[int]:
    return [0 if overwrite else _done(run.config, run.folder) for run in runs]


def _progress(config: ExperimentConfig, done: int) -> str:
    """The end of the line of a run of which some rounds are done."""
    if not done:
        return ""
    return "; finished" if done == config.training.rounds else f"; continues after round {done}"


def _total(runs: Sequence[StudyRun], done: Sequence[int]) -> str:
    """A line with the number of several runs, and that of the rounds that are not done."""
    if len(runs) == 1:
        return ""
    rounds = [run.config.training.rounds for run in runs]
    finished = sum(map(operator.eq, rounds, done))
    patient = any(run.config.evaluation.early_stopping_patience for run in runs)
    most = "at most " * (patient and sum(rounds) > sum(done))
    counted = f"\n{text.plural(len(runs), 'run')}"
    if finished:
        counted += f", of which {finished} {'is' if finished == 1 else 'are'} finished"
    return f"{counted}; {most}{_left(sum(rounds), sum(done))}"


def _left(rounds: int, done: int) -> str:
    """A number of rounds as text, or how many of them are left."""
    return f"{text.plural(rounds - done, 'round')}{' left' if done else ''}"


def sweep_methods(
    points: Mapping[str, Sequence[Point]],
    output_dir: str | os.PathLike,
    *,
    criterion: str = "va",
    halving: Halving | None = None,
    overwrite: bool = False,
) -> str:
    """Checks and describes the runs of a sweep over methods up to the choice.

    The last line counts them, the final runs, and the rounds of all, or those that are left. Takes
    the arguments of `sweep_methods`.
    """
    tuned = method_sweep.plan(points, output_dir, overwrite=overwrite)
    trials = [
        (trial.point, run) for method in tuned for trial in method.trials for run in trial.runs
    ]
    planned = [(f"{point.name or 'defaults'}: ", run.config) for point, run in trials]
    done = _all_done((run for _, run in trials), overwrite)
    lines = _describe_all(planned, done)
    total = sum(done) + (0 if overwrite else _finals_done(points, Path(output_dir)))
    return f"{lines}\n{_count(points, criterion, halving or Halving(), total)}"


def _finals_done(points: Mapping[str, Sequence[Point]], directory: Path) -> int:
    """The rounds of final runs that are done, with the settings of any point."""
    done = 0
    for config in (config for grid in points.values() for point in grid for config in point.finals):
        (run,) = comparison.plan([config], directory / method_sweep.COMPARISON, overwrite=True)
        try:
            check_directory(run.folder, config, overwrite=False, shared=True)
        except SettingError:  # the settings of another point
            continue
        done += _done(config, run.folder)
    return done


def _count(
    points: Mapping[str, Sequence[Point]], criterion: str, halving: Halving, done: int
) -> str:
    """The runs of a sweep over methods, and their rounds but for those done, in one line."""
    finals = [config for grid in points.values() for config in grid[0].finals]
    rounds = sum(tuning.most_rounds(grid, criterion, halving) for grid in points.values())
    rounds += sum(config.training.rounds for config in finals)
    settings = sum(len(grid) for grid in points.values())
    first = next(iter(points.values()))[0]
    counted = f"{text.plural(settings, 'setting')} with {_seeds(first.configs)}"
    if any(tuning.may_stop(grid, halving) for grid in points.values()):
        counted += ", some of which stop early"
    if finals:
        counted += f", then {text.plural(len(finals), 'final run')} with {_seeds(first.finals)}"
    return f"{counted}; at most {_left(rounds, done)}"


def _seeds(configs: Sequence[ExperimentConfig]) -> str:
    return f"seed{'' if len(configs) == 1 else 's'} {', '.join(str(c.seed) for c in configs)}"


def _describe_all(runs: Sequence[tuple[str, ExperimentConfig]], done: Sequence[int]) -> str:
    """Checks and describes runs, a line for each after its prefix; an error names all methods."""
    lines = refusals.for_all(
        lambda run: f"{run[0]}{describe(run[1])}", runs, lambda run: run[1].algorithm
    )
    ends = (_progress(config, rounds) for (_, config), rounds in zip(runs, done, strict=True))
    return "\n".join(map(operator.add, lines, ends))


def describe(config: ExperimentConfig) -> str:
    """Describes a run in one line: method, seed, data, partition, rounds, backbone, parameters.

    Settings of the model, training and aggregation follow if they are not the defaults.
    """
    heavy.load("tensorflow")
    config.check_data()
    spec = planning.check(config)
    stages.leave()
    parameters, _ = planning.backbone_size(config, spec.input_spec)
    size = f"{parameters:,} parameters before the head"
    if not config.data.source.inputs_are_known:
        size = "for inputs whose shape is known once the data are read"
    rounds = config.training.rounds
    return (
        f"{config.method_title} seed {config.seed}: {config.data.describe()}, "
        f"{rounds} round{'s' * (rounds > 1)}, {config.model.backbone.name}, "
        f"{size}{_changed(config)}"
    )


def _changed(config: ExperimentConfig) -> str:
    """The settings of the model, training and aggregation that differ from their defaults."""
    changed = flatten(config, changed=True)
    return "".join(
        f", {setting.name}={changed[setting.name]}"
        for setting in describe_settings(ExperimentConfig)
        if setting.group in _GROUPS and setting.name in changed and setting.name not in _SHOWN
    )
