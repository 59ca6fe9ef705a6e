"""Runs or resumes an experiment; TensorFlow is imported only if there is something to compute."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tff_pcdd import directories, heavy, stages
from tff_pcdd.errors import SettingError
from tff_pcdd.experiment.config import ExperimentConfig, check_is_config
from tff_pcdd.training import earlier_data, imports, recovery, warm_start
from tff_pcdd.training.recovery import finished_summary
from tff_pcdd.training.run_directory import check_directory, fewer_rounds
from tff_pcdd.training.run_options import RunOptions

if TYPE_CHECKING:
    from tff_pcdd.data import Federation
    from tff_pcdd.training.callbacks import Callback

_logger = logging.getLogger(__name__)


def run_experiment(
    config: ExperimentConfig,
    output_dir: str | os.PathLike,
    options: RunOptions | None = None,
    *,
    overwrite: bool = False,
    label: str = "",
    federation: Federation | None = None,
    callbacks: Sequence[Callback] = (),
    pause_after: int | None = None,
    report: bool = True,
) -> dict[str, Any]:
    """Runs or resumes an experiment in a directory; if it has finished, only reads its summary.

    A run of fewer rounds that has finished is continued.
    Files of the models' answers that a finished run lacks are computed from its last checkpoint.
    With `pause_after`, a run of the planned number of rounds can be computed in several parts: a
    later call continues it, and its results are those of a run that never paused.

    Args:
        config: the settings of the experiment.
        output_dir: the directory of the results.
        options: how and where it is computed, and what is written.
        overwrite: delete earlier results in the directory and start again.
        label: text in front of the progress bar; the method's name by default.
        federation: the clients and their samples; by default they are loaded as `config` says.
        callbacks: callbacks in addition to the built-in ones.
        pause_after: the round after which training pauses, with a checkpoint, if the run does not
            end before.
        report: write report.html when the run has finished; if that fails, warn.

    Returns:
        The summary, as in summary.json; only {"paused": ROUND} if the run has paused.

    Raises:
        SettingError: the settings cannot be used, the directory contains something else, or
            another process is writing to it.
        DataError: the data cannot be read, or no checkpoint of the run can be used.
        WriteError: a result cannot be written. The next call continues from the last checkpoint.
    """
    check_is_config(config)
    if not isinstance(options, RunOptions | None):
        reason = "must be RunOptions, such as RunOptions(progress=False)"
        raise SettingError("options", options, reason)
    directory = Path(output_dir)
    summary = finished_result(
        config, directory, options, overwrite=overwrite, pause_after=pause_after
    )
    if summary is None:
        warm_start.check([(config, directory)], overwrite=overwrite)
        compute = (options or RunOptions()).compute
        compute.check(config)
        directories.check_writable(directory)
        compute.runtime.prepare()
        if federation is None:
            # Most data need no TensorFlow, so what is wrong with them is said at once.
            stages.enter("loading data")
            federation = config.data.build()
        heavy.load("tensorflow", "tensorflow_federated")
        from tff_pcdd.training.run import Run

        run = Run(
            config,
            directory,
            options,
            federation=federation,
            callbacks=callbacks,
            label=label,
            pause_after=pause_after,
        )
        # Also if another process has started the run in the meantime.
        with run.simulation:
            summary = run.train(overwrite=overwrite)
        stages.leave()
    if report and "paused" not in summary:
        write_report(run_dir=directory)
    return summary


def write_report(**directory: Path) -> None:
    """Writes report.html at the end of a run or a study, whose results are complete without it.

    The directory is given as `run_dir`, `comparison_dir` or `sweep_dir`.
    """
    from tff_pcdd.report import writing

    _, failure = writing.write_automatically(**directory)
    if failure:
        _logger.warning("report.html was not written: %s", failure)


def finished_result(
    config: ExperimentConfig,
    directory: Path,
    options: RunOptions | None = None,
    *,
    overwrite: bool = False,
    pause_after: int | None = None,
) -> dict[str, Any] | None:
    """What `run_experiment` returns for a run in a directory; None if it has to compute something.

    Raises:
        SettingError: the directory contains something else, or another process is writing to it.
        DataError: no checkpoint of the run can be used.
    """
    check_directory(directory, config, overwrite)
    if overwrite:
        return None
    recovery.repair(directory)
    summary = finished_summary(directory, config)
    predictions = options is not None and options.predictions
    if summary is not None and recovery.lacks_answers(directory, predictions=predictions):
        return None
    if summary is None and pause_after is not None:
        summary = paused_result(config, directory, pause_after)
    if summary is not None:
        imports.warn_of_results(directory)
        earlier_data.warn_of_results(directory, config)
    return summary


def paused_result(
    config: ExperimentConfig, directory: Path, pause_after: int
) -> dict[str, Any] | None:
    """What a run returns that has been trained up to its pause; None if it has not been."""
    # The checkpoint of a finished run of fewer rounds is that of an unusual round.
    if fewer_rounds(directory, config) is not None:
        return None
    record = recovery.recorded(directory)
    if record is None or record.round < pause_after:
        return None
    return {"paused": record.round}
