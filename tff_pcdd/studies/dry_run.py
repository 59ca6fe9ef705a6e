"""Dry runs: planned runs are checked and described without loading data.

A dry run makes the checks that a run makes before it loads data: settings, directories, whether the
backbone accepts the inputs, and the file of pretrained weights. Other problems appear only in the
run: samples that cannot be divided as requested, a device that is missing, or an aggregator that
does not accept what the clients upload.
"""

from __future__ import annotations

import functools
import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from etils import epy

from tff_pcdd.models import Backbone
from tff_pcdd.studies import comparison, sweeps
from tff_pcdd.studies.outcomes import Point
from tff_pcdd.training import ExperimentConfig
from tff_pcdd.training.run_directory import check_directory

with epy.lazy_imports():
    import tensorflow as tf


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


def describe(config: ExperimentConfig) -> str:
    """Describes a run in one line: method, seed, data, partition, rounds, backbone, parameters.

    Raises:
        SettingError: the backbone does not accept the inputs of the data set, cannot start from the
            given weights, or has too few features.
    """
    spec = config.data.input_spec()
    backbone = config.model.backbone
    parameters, feature_dim = _size(
        backbone, spec.shape, config.model.projection_dim, spec.vocabulary_size
    )
    config.check_features(feature_dim, config.data.source.least_classes())
    return (
        f"{config.algorithm} seed {config.seed}: {config.data.describe()}, "
        f"{config.training.rounds} rounds, {backbone.name}, "
        f"{parameters:,} parameters before the head"
    )


@functools.cache
def _size(
    backbone: Backbone, shape: tuple[int, ...], projection_dim: int, vocabulary_size: int | None
) -> tuple[int, int]:
    """The numbers of trainable parameters, including the projection, and of features."""
    backbone.initial_values(shape)
    # Building it in a graph allocates no memory.
    with tf.Graph().as_default():
        model = backbone.build(
            shape, projection_dim=projection_dim, vocabulary_size=vocabulary_size
        )
    parameters = sum(math.prod(variable.shape) for variable in model.trainable_weights)
    return parameters, model.output_shape[-1]
