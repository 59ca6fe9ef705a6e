"""Runs or resumes an experiment; TensorFlow is imported only if there is something to compute."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tff_pcdd import disks, heavy, stages
from tff_pcdd.training import results
from tff_pcdd.training.config import ExperimentConfig
from tff_pcdd.training.run_directory import check_directory, finished_summary
from tff_pcdd.training.run_options import RunOptions

if TYPE_CHECKING:
    from tff_pcdd.data import Federation
    from tff_pcdd.training.callbacks import Callback


def run_experiment(
    config: ExperimentConfig,
    output_dir: str | os.PathLike,
    options: RunOptions | None = None,
    *,
    overwrite: bool = False,
    label: str = "",
    federation: Federation | None = None,
    callbacks: Sequence[Callback] = (),
) -> dict[str, Any]:
    """Runs or resumes an experiment in a directory; if it has finished, only reads its summary.

    A run of fewer rounds that has finished is continued.
    Files of the models' answers that a finished run lacks are computed from its last checkpoint.

    Args:
        config: the settings of the experiment.
        output_dir: the directory of the results.
        options: how and where it is computed, and what is written.
        overwrite: delete earlier results in the directory and start again.
        label: text in front of the progress bar; the method's name by default.
        federation: the clients and their samples; by default they are loaded as `config` says.
        callbacks: callbacks in addition to the built-in ones.

    Returns:
        The summary, as in summary.json.

    Raises:
        SettingError: the settings cannot be used, the directory contains something else, or
            another process is writing to it.
        DataError: the data cannot be read, or no checkpoint of the run can be used.
        WriteError: a result cannot be written. The next call continues from the last checkpoint.
    """
    directory = Path(output_dir)
    summary = finished_result(config, directory, options, overwrite=overwrite)
    if summary is None:
        (options or RunOptions()).compute.check_precision(config.model.precision)
        disks.check_writable(directory)
        if federation is None:
            # Most data need no TensorFlow, so what is wrong with them is said at once.
            stages.enter("loading data")
            federation = config.data.build()
        heavy.load("tensorflow", "tensorflow_federated")
        from tff_pcdd.training.run import Run

        run = Run(
            config, directory, options, federation=federation, callbacks=callbacks, label=label
        )
        # Also if another process has started the run in the meantime.
        with run.simulation:
            summary = run.train(overwrite=overwrite)
        stages.leave()
    return summary


def finished_result(
    config: ExperimentConfig,
    directory: Path,
    options: RunOptions | None = None,
    *,
    overwrite: bool = False,
) -> dict[str, Any] | None:
    """The summary of a run in a directory; None if there is something to compute.

    Args:
        config, directory, options, overwrite: as for `run_experiment`.

    Raises:
        SettingError: the directory contains something else, or another process is writing to it.
        DataError: no checkpoint of the run can be used.
    """
    check_directory(directory, config, overwrite)
    if overwrite:
        return None
    results.repair(directory)
    summary = finished_summary(directory, config)
    predictions = options is not None and options.predictions
    if summary is not None and results.lacks_answers(directory, predictions=predictions):
        return None
    return summary
