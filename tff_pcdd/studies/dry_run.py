"""What --dry_run prints: runs that are checked and described without their data.

All is checked that a run checks before it loads data: settings, directories, whether the backbone
takes such inputs, a file of weights. What depends on the samples (can a partition be drawn),
on the runtime (is a device there) and on what clients send (does the aggregator take it) is left to
the run.
"""

from __future__ import annotations

import functools
import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import tensorflow as tf

from tff_pcdd import data, models
from tff_pcdd.training import comparison, grid_search, plots
from tff_pcdd.training.config import ExperimentConfig
from tff_pcdd.training.runs import check_directory


def train(
    config: ExperimentConfig, output_dir: str | os.PathLike, *, overwrite: bool = False
) -> str:
    """Checks a single run; takes the arguments of `run_experiment`. Returns its line.

    Raises:
        OptionError: as the run would.
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
        OptionError: as the comparison would.
    """
    runs = comparison.plan(configs, output_dir, overwrite=overwrite)
    return "\n".join(describe(run.config) for run in runs)


def sweep(
    points: Sequence[grid_search.Point],
    output_dir: str | os.PathLike,
    *,
    overwrite: bool = False,
) -> str:
    """Checks the runs of a sweep; takes the arguments of `sweep`. Returns a line for each.

    Raises:
        OptionError: as the sweep would.
    """
    grid_search.plan(points, output_dir, overwrite=overwrite)
    return "\n".join(
        f"{point.name}: {describe(config)}" for point in points for config in point.configs
    )


def describe(config: ExperimentConfig) -> str:
    """A run in one line: method, seed, data, partition, rounds, backbone and its parameters.

    Raises:
        OptionError: the backbone cannot take the data set's inputs or start from the given weights,
            or gives too few features.
    """
    spec = config.data_config().input_spec()
    parameters, feature_dim = _size(
        config.model,
        spec.shape,
        config.projection_dim,
        spec.vocabulary_size,
        config.normalization,
        config.pretrained_weights,
    )
    info = data.dataset_info(config.dataset)
    if not info.has_users:  # which may come with fewer classes than their largest edition
        config.check_features(feature_dim, info.num_classes)
    return (
        f"{config.algorithm} seed {config.seed}: {plots.describe_data(config)}, "
        f"{config.rounds} rounds, {config.model}, {parameters:,} parameters before the head"
    )


@functools.cache
def _size(model, shape, projection_dim, vocabulary_size, norm, pretrained_weights):
    """How many numbers a backbone, with its projection, trains, and how many features it gives."""
    if pretrained_weights is not None:
        models.read_weights(model, shape, pretrained_weights)
    # In a graph nothing is allocated.
    with tf.Graph().as_default():
        backbone = models.build(
            model,
            shape,
            projection_dim=projection_dim,
            vocabulary_size=vocabulary_size,
            norm=norm,
        )
    parameters = sum(math.prod(variable.shape) for variable in backbone.trainable_weights)
    return parameters, backbone.output_shape[-1]
