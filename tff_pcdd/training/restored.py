"""Restores and evaluates finished or interrupted runs."""

from __future__ import annotations

import dataclasses
import logging
import os
from pathlib import Path
from typing import Any

from tff_pcdd import evaluation, files, measures, stages, tables
from tff_pcdd.data import Federation
from tff_pcdd.experiment.accuracies import PERSONAL_COLUMNS, personal_accuracies
from tff_pcdd.experiment.config import ExperimentConfig
from tff_pcdd.training import manifests, predictions
from tff_pcdd.training.file_names import CHECKPOINTS, CLIENT_STATES, EVALUATION
from tff_pcdd.training.run import Run
from tff_pcdd.training.run_directory import (
    check_entries,
    json_text,
    newest_checkpoint,
    settings_of,
    without_nan,
)
from tff_pcdd.training.run_options import RunOptions
from tff_pcdd.training.summary import summarize_accuracies

_logger = logging.getLogger(__name__)


def restore_run(
    config: ExperimentConfig,
    run_dir: str | os.PathLike,
    options: RunOptions | None = None,
    round_number: int | None = None,
    *,
    federation: Federation | None = None,
) -> Run:
    """Restores a run to its state after a round; takes the arguments of `evaluate_run`.

    Raises:
        FileNotFoundError: there is no such checkpoint.
        SettingError: something in the directory is not what its name says.
        DataError: the checkpoint is damaged, belongs to another run, or was written with other
            data.
    """
    directory = Path(run_dir)
    check_entries(directory, "run_dir")
    options = options or RunOptions()
    record = newest_checkpoint(directory, settings_of(directory, config))
    # The folder may be left from a process that was ended before its first checkpoint.
    on_disk = (directory / CLIENT_STATES).is_dir() if record is None else not record.inline
    if on_disk:
        options = dataclasses.replace(options, client_store="disk")
    run = Run(config, directory, options, federation=federation)
    run.restore(round_number)
    return run


def warn_of_better_round(run: Run) -> None:
    """Warns if an earlier round of a restored run is better on held-out samples, and what to do.

    The rounds are compared as in summary.json: by the accuracy of the global model, or without one
    by that of the personal models.
    """
    config, history = run.config, run.history
    if not len(history):
        return
    measure = measures.of("va" if config.method.has_global_model else "va_personal")
    found = summarize_accuracies(
        history,
        diverged=run.simulation.nonfinite.diverged,
        whole=config.evaluation.personal_eval_every is None,
    )
    best, value, here = found.get(measure.best_round), found.get(measure.best), history[-1]
    if best is None or (here[measure.name] is not None and here[measure.name] >= value):
        return
    if best in manifests.rounds(run.directory / CHECKPOINTS, ["json"]):
        remedy = f"checkpoint_round={best} takes it"
    else:
        shorter = "" if config.planned_by else f"with `rounds={best}` in another directory, or "
        remedy = f"its checkpoint was not kept; train {shorter}with a larger `keep_checkpoints`"
    _logger.warning(
        "round %d is used, but round %d is better on held-out samples (%s %% instead of %s %%); %s",
        here["round"],
        best,
        tables.percent(value),
        tables.percent(here[measure.name]),
        remedy,
    )


def evaluate_run(
    config: ExperimentConfig,
    run_dir: str | os.PathLike,
    options: RunOptions | None = None,
    round_number: int | None = None,
    *,
    federation: Federation | None = None,
) -> dict[str, Any]:
    """Evaluates a checkpoint of a run and writes evaluation.json into its directory.

    With the option `predictions`, also predictions.csv and calibration.json of this checkpoint.

    Args:
        config: the settings of the run; only data_dir may differ.
        run_dir: the directory of the run.
        options: how and where the accuracies are computed.
        round_number: the round of the checkpoint, by default the newest that is not damaged. If
            that is not the newest of all, a warning says so.
        federation: the clients and their samples, if the run did not load them as `config` says.

    Returns:
        The round, the accuracies, the personal accuracies of each client, the diagnostics that
        `options` selects, and with `predictions` the calibration of the global model and of all
        personal models together. Accuracies without samples are None.

    Raises:
        FileNotFoundError: there is no such checkpoint.
        SettingError: the directory cannot be written to, or as `restore_run`.
        DataError: as `restore_run`.
        WriteError: a file cannot be written.
    """
    files.check_writable(Path(run_dir), "run_dir")
    files.remove_leftovers(Path(run_dir))
    run = restore_run(config, run_dir, options, round_number, federation=federation)
    if round_number is None:
        warn_of_better_round(run)
    with run.simulation:
        stages.enter("evaluating")
        results = _evaluate(run)
        if run.simulation.nonfinite.diverged:
            results["diverged"] = True
        if options is not None and options.predictions:
            results["calibration"] = predictions.write_predictions(run)
    # The accuracy without samples is NaN.
    results = without_nan(results)
    files.write_text(run.directory / EVALUATION, json_text(results))
    return results


def _evaluate(run: Run) -> dict[str, Any]:
    """What `evaluate_run` returns, with NaN for an accuracy without samples."""
    simulation = run.simulation
    means = simulation.evaluate_global()
    counts = simulation.personal_counts()
    means.update(personal_accuracies(counts, simulation.groups, run.config.evaluation.metrics))
    total = counts["total"]
    results: dict[str, Any] = {
        "round": simulation.round,
        "accuracies": means,
        "clients": {
            client_id: {
                column: evaluation.accuracy(counts[key][index], total[index])
                for key, column in PERSONAL_COLUMNS.items()
            }
            for index, client_id in enumerate(simulation.federation.client_ids)
            if total[index].sum()
        },
    }
    if run.diagnostics:
        results["diagnostics"] = run.diagnose()
    return results
