"""Restores and evaluates finished or interrupted runs."""

from __future__ import annotations

import dataclasses
import logging
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tff_pcdd import directories, evaluation, files, stages, tables
from tff_pcdd.data import Federation
from tff_pcdd.data.checks import warned_before
from tff_pcdd.errors import SettingError
from tff_pcdd.experiment.accuracy_columns import PERSONAL_COLUMNS
from tff_pcdd.experiment.config import ExperimentConfig
from tff_pcdd.experiment.history import History
from tff_pcdd.training import manifests, predictions
from tff_pcdd.training.file_names import CHECKPOINTS, CLIENT_STATES, EVALUATION, SUMMARY
from tff_pcdd.training.manifests import Manifest
from tff_pcdd.training.run import Run
from tff_pcdd.training.run_directory import (
    check_entries,
    is_unfinished,
    json_text,
    settings_of,
    without_nan,
)
from tff_pcdd.training.run_options import RunOptions
from tff_pcdd.training.summary import best_round, held_out_measure

if TYPE_CHECKING:
    from tff_pcdd.data.federation import ClientIndices

_logger = logging.getLogger(__name__)

# What names the round that is best on held-out samples, in the place of its number.
BEST = "best"


def restore_run(
    config: ExperimentConfig,
    run_dir: str | os.PathLike,
    options: RunOptions | None = None,
    round_number: int | str | None = None,
    *,
    federation: Federation | None = None,
) -> Run:
    """Restores a run to its state after a round; takes the arguments of `evaluate_run`.

    Raises:
        FileNotFoundError: there is no such checkpoint.
        SettingError: something in the directory is not what its name says, or "best" is asked for
            and there is no best round.
        DataError: the checkpoint is damaged, belongs to another run, or was written with other
            data.
    """
    directory = Path(run_dir)
    check_entries(directory, "run_dir")
    options = options or RunOptions()
    record = manifests.newest_intact(directory, settings_of(directory, config))
    # The folder may be left from a process that was ended before its first checkpoint.
    on_disk = (directory / CLIENT_STATES).is_dir() if record is None else not record.inline
    if on_disk:
        options = dataclasses.replace(options, client_store="disk")
    if isinstance(round_number, str):
        round_number = _named_round(config, record, round_number)
    with warned_before():
        run = Run(config, directory, options, federation=federation)
    run.restore(round_number)
    return run


def _named_round(config: ExperimentConfig, record: Manifest | None, name: str) -> int | None:
    """The number of the best round of a run, by its newest manifest; None without any."""
    if name != BEST:
        raise SettingError("checkpoint_round", name, f"must be the number of a round, or {BEST}")
    if record is None:
        return None
    best = best_round(config, History.parse(record.metrics))
    if best is None:
        reason = "no round was measured on held-out samples; name a round, or train with "
        raise SettingError("checkpoint_round", name, f"{reason}`validation_fraction`, such as 0.2")
    return best


def warn_of_round(run: Run, round_number: int | str | None) -> None:
    """Warns if the round of a restored run is not the one that its user may think it is."""
    warn_of_unfinished_run(run, round_number)
    warn_of_better_round(run, round_number)


def warn_of_better_round(run: Run, round_number: int | str | None) -> None:
    """Warns if an earlier round of a restored run is better on held-out samples, and what to do.

    Nothing is said if a round was asked for, or of a difference that the number of held-out samples
    cannot show, by its interval of 95 %.
    """
    best = best_round(run.config, run.history)
    if round_number is not None or best is None or run.simulation.nonfinite.diverged:
        return
    name, here = held_out_measure(run.config).name, run.history[-1]
    values = dict(run.history.points(name))
    if here[name] is not None:
        samples = run.simulation.federation.validation_class_counts().sum()
        if evaluation.accuracy_interval(values[best], here[name], int(samples))[0] <= 0:
            return
    remedy = f"checkpoint_round={BEST} takes it"
    if best not in manifests.rounds(run.directory / CHECKPOINTS, ["json"]):
        remedy = "its checkpoint is not there; the same training in another directory keeps it"
    _logger.warning(
        "round %d is used, but round %d is better on held-out samples (%s %% instead of %s %%); %s",
        here["round"],
        best,
        tables.percent(values[best]),
        tables.percent(here[name]),
        remedy,
    )


def warn_of_unfinished_run(run: Run, round_number: int | str | None) -> None:
    """Warns if a restored run has not finished, unless the number of a round was asked for."""
    if isinstance(round_number, int) or not is_unfinished(run.directory):
        return
    newest = manifests.rounds(run.directory / CHECKPOINTS, ["json"])[-1]
    planned = run.config.training.rounds
    lacking = f", without {SUMMARY}" if newest == planned else ""
    _logger.warning("the run is not finished: round %d of %d%s", newest, planned, lacking)


def evaluate_run(
    config: ExperimentConfig,
    run_dir: str | os.PathLike,
    options: RunOptions | None = None,
    round_number: int | str | None = None,
    *,
    federation: Federation | None = None,
) -> dict[str, Any]:
    """Evaluates a checkpoint of a run and writes evaluation.json into its directory.

    With the option `predictions`, also predictions.csv and calibration.json of this checkpoint.

    Args:
        config: the settings of the run; only data_dir may differ.
        run_dir: the directory of the run.
        options: how and where the accuracies are computed.
        round_number: the round of the checkpoint, or "best" for that of the round that is best on
            held-out samples; by default the newest that is not damaged. If that is not the newest
            of all, a warning says so.
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
    directories.check_writable(Path(run_dir), "run_dir")
    files.remove_leftovers(Path(run_dir))
    run = restore_run(config, run_dir, options, round_number, federation=federation)
    warn_of_round(run, round_number)
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
    federation = simulation.federation
    means = simulation.evaluate()
    answers = simulation.answers()
    results: dict[str, Any] = {
        "round": simulation.round,
        "accuracies": means,
        "clients": _at_clients(federation.clients, answers.counts),
    }
    if answers.at_new_clients is not None:
        counts = answers.at_new_clients.counts
        results["new_clients"] = _at_clients(federation.new_clients, counts)
    if run.diagnostics:
        results["diagnostics"] = run.diagnose()
    return results


def _at_clients(
    clients: Sequence[ClientIndices], counts: Mapping[str, np.ndarray]
) -> dict[str, dict[str, float]]:
    """The accuracies of the personal models of clients with test samples, by the client's id."""
    total = counts["total"]
    return {
        client.client_id: {
            column: evaluation.accuracy(counts[key][index], total[index])
            for key, column in PERSONAL_COLUMNS.items()
        }
        for index, client in enumerate(clients)
        if total[index].sum()
    }
