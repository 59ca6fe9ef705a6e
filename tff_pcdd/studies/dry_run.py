"""Dry runs: planned runs are checked and described without loading data.

A dry run makes the checks that a run makes before it loads data: settings, directories, whether the
backbone accepts the inputs, the file of pretrained weights, and whether the aggregator accepts what
the clients of the method send. Other problems appear only in the run: samples that cannot be
divided as requested, or a device that is missing.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from tff_pcdd import heavy, stages
from tff_pcdd.studies import comparison, method_sweep, sweeps
from tff_pcdd.studies.outcomes import Point
from tff_pcdd.training import ExperimentConfig, planning
from tff_pcdd.training.run_directory import check_directory


def train(
    config: ExperimentConfig, output_dir: str | os.PathLike, *, overwrite: bool = False
) -> str:
    """Checks a run and describes it in one line; takes the arguments of `run_experiment`.

    Raises:
        SettingError: the run would raise it too.
    """
    check_directory(Path(output_dir), config, overwrite)
    return describe(config)


def compare(
    configs: Sequence[ExperimentConfig] | Mapping[str, Sequence[ExperimentConfig]],
    output_dir: str | os.PathLike,
    *,
    overwrite: bool = False,
) -> str:
    """Checks and describes the runs of a comparison; takes the arguments of `compare`.

    Raises:
        SettingError: the comparison would raise it too.
    """
    runs = comparison.plan(configs, output_dir, overwrite=overwrite)
    return "\n".join(describe(run.config) for run in runs)


def sweep(
    points: Sequence[Point], output_dir: str | os.PathLike, *, overwrite: bool = False
) -> str:
    """Checks and describes the runs of a sweep; takes the arguments of `sweep`.

    Raises:
        SettingError: the sweep would raise it too.
    """
    sweeps.plan(points, output_dir, overwrite=overwrite)
    return "\n".join(
        f"{point.name}: {describe(config)}" for point in points for config in point.configs
    )


def sweep_methods(
    points: Mapping[str, Sequence[Point]], output_dir: str | os.PathLike, *, overwrite: bool = False
) -> str:
    """Checks and describes the runs of a sweep over methods up to the choice.

    Takes the arguments of `sweep_methods`.

    Raises:
        SettingError: the sweep would raise it too.
    """
    method_sweep.plan(points, output_dir, overwrite=overwrite)
    return "\n".join(
        f"{point.name or 'defaults'}: {describe(config)}"
        for grid in points.values()
        for point in grid
        for config in point.configs
    )


def describe(config: ExperimentConfig) -> str:
    """Describes a run in one line: method, seed, data, partition, rounds, backbone, parameters.

    Raises:
        SettingError: as `planning.check`.
    """
    heavy.load("tensorflow")
    spec = planning.check(config)
    stages.leave()
    parameters, _ = planning.backbone_size(config, spec.input_spec)
    return (
        f"{config.algorithm} seed {config.seed}: {config.data.describe()}, "
        f"{config.training.rounds} rounds, {config.model.backbone.name}, "
        f"{parameters:,} parameters before the head"
    )
