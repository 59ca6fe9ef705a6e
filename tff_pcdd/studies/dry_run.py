"""Dry runs: planned runs are checked and described without loading data.

A dry run makes the checks that a run makes before it loads data: settings, directories, whether the
backbone accepts the inputs, the file of pretrained weights, and whether the aggregator accepts what
the clients of the method send. Other problems appear only in the run: samples that cannot be
divided as requested, or a device that is missing.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tff_pcdd import heavy, stages, text
from tff_pcdd.experiment import planning, refusals
from tff_pcdd.settings import Setting, flat_name, option_fields
from tff_pcdd.settings import describe as describe_settings
from tff_pcdd.studies import comparison, method_sweep, sweeps, tuning
from tff_pcdd.studies.sweeps import Point
from tff_pcdd.studies.tuning import Halving
from tff_pcdd.training import ExperimentConfig, warm_start
from tff_pcdd.training.run_directory import check_directory

# Headings of the settings that say what is trained and how, and those among them that the line of a
# run shows anyway: the number of parameters includes the projection.
_GROUPS = ("Model", "Training", "Aggregation")
_SHOWN = ("model", "projection_dim", "rounds")


def train(
    config: ExperimentConfig, output_dir: str | os.PathLike, *, overwrite: bool = False
) -> str:
    """Checks a run and describes it in one line; takes the arguments of `run_experiment`.

    Raises:
        SettingError: the run would raise it too.
    """
    check_directory(Path(output_dir), config, overwrite)
    warm_start.check([(config, Path(output_dir))], overwrite=overwrite)
    return describe(config)


def compare(
    configs: Sequence[ExperimentConfig] | Mapping[str, Sequence[ExperimentConfig]],
    output_dir: str | os.PathLike,
    *,
    overwrite: bool = False,
) -> str:
    """Checks and describes the runs of a comparison; takes the arguments of `compare`.

    The last line counts them and their rounds.

    Raises:
        SettingError: the comparison would raise it too.
    """
    planned = [run.config for run in comparison.plan(configs, output_dir, overwrite=overwrite)]
    return f"{_describe_all(('', config) for config in planned)}{_total(planned)}"


def sweep(
    points: Sequence[Point], output_dir: str | os.PathLike, *, overwrite: bool = False
) -> str:
    """Checks and describes the runs of a sweep; takes the arguments of `sweep`.

    The last line counts them and their rounds.

    Raises:
        SettingError: the sweep would raise it too.
    """
    sweeps.plan(points, output_dir, overwrite=overwrite)
    planned = [(point.name, config) for point in points for config in point.configs]
    lines = "\n".join(f"{name}: {describe(config)}" for name, config in planned)
    return f"{lines}{_total([config for _, config in planned])}"


def _total(configs: Sequence[ExperimentConfig]) -> str:
    """A line with the number of several runs, and that of their rounds."""
    if len(configs) == 1:
        return ""
    most = "at most " * any(config.evaluation.early_stopping_patience for config in configs)
    rounds = sum(config.training.rounds for config in configs)
    return f"\n{text.plural(len(configs), 'run')}; {most}{text.plural(rounds, 'round')}"


def sweep_methods(
    points: Mapping[str, Sequence[Point]],
    output_dir: str | os.PathLike,
    *,
    criterion: str = "va",
    halving: Halving | None = None,
    overwrite: bool = False,
) -> str:
    """Checks and describes the runs of a sweep over methods up to the choice.

    The last line counts them, the final runs, and the rounds of all. Takes the arguments of
    `sweep_methods`.

    Raises:
        SettingError: the sweep would raise it too.
    """
    method_sweep.plan(points, output_dir, overwrite=overwrite)
    lines = _describe_all(
        (f"{point.name or 'defaults'}: ", config)
        for grid in points.values()
        for point in grid
        for config in point.configs
    )
    return f"{lines}\n{_count(points, criterion, halving or Halving())}"


def _count(points: Mapping[str, Sequence[Point]], criterion: str, halving: Halving) -> str:
    """The runs of a sweep over methods, and their rounds, in one line."""
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
    return f"{counted}; at most {text.plural(rounds, 'round')}"


def _seeds(configs: Sequence[ExperimentConfig]) -> str:
    return f"seed{'' if len(configs) == 1 else 's'} {', '.join(str(c.seed) for c in configs)}"


def _describe_all(runs: Iterable[tuple[str, ExperimentConfig]]) -> str:
    """Checks and describes runs, a line for each after its prefix.

    Raises:
        SettingError: as `planning.check`; names all methods that are refused.
    """
    lines = refusals.for_all(
        lambda run: f"{run[0]}{describe(run[1])}", runs, lambda run: run[1].algorithm
    )
    return "\n".join(lines)


def describe(config: ExperimentConfig) -> str:
    """Describes a run in one line: method, seed, data, partition, rounds, backbone, parameters.

    Settings of the model, training and aggregation follow if they are not the defaults.

    Raises:
        SettingError: as `planning.check`.
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
    settings = config.to_settings()
    changed = [
        f"{setting.name}={settings[setting.name]}"
        for setting in describe_settings(ExperimentConfig)
        if setting.group in _GROUPS
        and setting.name in settings
        and setting.name not in _SHOWN
        and settings[setting.name] != _default(config, setting)
    ]
    return "".join(f", {setting}" for setting in changed)


def _default(config: ExperimentConfig, setting: Setting) -> Any:
    """The default of a setting of the component that is chosen."""
    components = (
        config.model.backbone,
        config.training.optimizer,
        config.training.schedule,
        config.aggregator,
        config.server_optimizer,
    )
    for component in components:
        for field in option_fields(type(component)):
            if flat_name(type(component), field) == setting.name:
                return field.metadata["default"]
    return setting.default
