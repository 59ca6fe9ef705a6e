"""Finished or interrupted runs, as they were after a round."""

from __future__ import annotations

import dataclasses
import json
import os
from pathlib import Path
from typing import Any

from tff_pcdd import evaluation, files
from tff_pcdd.training.accuracies import PERSONAL_COLUMNS, personal_accuracies
from tff_pcdd.training.config import ExperimentConfig
from tff_pcdd.training.run import _CLIENT_STATES, Run
from tff_pcdd.training.run_options import RunOptions


def restore_run(
    config: ExperimentConfig,
    run_dir: str | os.PathLike,
    options: RunOptions | None = None,
    round_number: int | None = None,
) -> Run:
    """A run as it was after a round; arguments and errors as of `evaluate_run`."""
    directory = Path(run_dir)
    options = options or RunOptions()
    if (directory / _CLIENT_STATES).is_dir():
        options = dataclasses.replace(options, client_store="disk")
    run = Run(config, directory, options)
    run.restore(round_number)
    return run


def evaluate_run(
    config: ExperimentConfig,
    run_dir: str | os.PathLike,
    options: RunOptions | None = None,
    round_number: int | None = None,
) -> dict[str, Any]:
    """Evaluates a checkpoint of a run and writes evaluation.json into its directory.

    Args:
        config: the run's settings; only the place of the data may differ.
        run_dir: the run's directory.
        options: how and where it is computed.
        round_number: which checkpoint, by default the newest.

    Returns:
        The round, the mean accuracies, the personal accuracies by client, and the diagnostics that
        `options` asks for; None for an accuracy without samples.

    Raises:
        FileNotFoundError: there is no such checkpoint.
    """
    run = restore_run(config, run_dir, options, round_number)
    with run.simulation:
        results = _evaluate(run)
    # JSON has no NaN, which is the accuracy without samples.
    results = json.loads(json.dumps(results), parse_constant=lambda _: None)
    files.write_text(run.directory / "evaluation.json", json.dumps(results, indent=2) + "\n")
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
