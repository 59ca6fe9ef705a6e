"""What `--dry_run` prints: runs that are checked and described without their data.

Everything is checked that a run checks before it loads data: settings, directories, whether the
backbone takes such inputs, and a file of weights. What depends on the samples (can the partition be
drawn?), on the runtime (is the device there?) and on what clients upload (does the aggregator
accept it?) is left to the run.
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
    """Checks a single run; takes the arguments of `run_experiment`. Returns its line.

    Raises:
        SettingError: as the run would.
    """
    check_directory(Path(output_dir), config, overwrite)
    return describe(config)


def compare(
    configs: Sequence[ExperimentConfig] | Mapping[str, Sequence[ExperimentConfig]],
    output_dir: str | os.PathLike,
    *,
    overwrite: bool = False,
) -> str:
    """Checks the runs of a comparison; takes the arguments of `compare`. Returns a line for each.

    Raises:
        SettingError: as the comparison would.
    """
    runs = comparison.plan(configs, output_dir, overwrite=overwrite)
    return "\n".join(describe(run.config) for run in runs)


def sweep(
    points: Sequence[Point], output_dir: str | os.PathLike, *, overwrite: bool = False
) -> str:
    """Checks the runs of a sweep; takes the arguments of `sweep`. Returns a line for each.

    Raises:
        SettingError: as the sweep would.
    """
    sweeps.plan(points, output_dir, overwrite=overwrite)
    return "\n".join(
        f"{point.name}: {describe(config)}" for point in points for config in point.configs
    )


def describe(config: ExperimentConfig) -> str:
    """A run in one line: method, seed, data, partition, rounds, backbone and its parameters.

    Raises:
        SettingError: the backbone cannot take the data set's inputs or start from the given
            weights, or gives too few features.
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
    """The numbers of trained parameters, with the projection, and of features."""
    backbone.initial_values(shape)
    # In a graph nothing is allocated.
    with tf.Graph().as_default():
        model = backbone.build(
            shape, projection_dim=projection_dim, vocabulary_size=vocabulary_size
        )
    parameters = sum(math.prod(variable.shape) for variable in model.trainable_weights)
    return parameters, model.output_shape[-1]
