"""A head calibration of a finished run, in a directory of its own that is a run too."""

from __future__ import annotations

import dataclasses
import os
import shutil
import time
from pathlib import Path
from typing import Any

import tensorflow as tf

from tff_pcdd import files, stages
from tff_pcdd.data import Federation
from tff_pcdd.data.checks import warned_before
from tff_pcdd.errors import DataError
from tff_pcdd.experiment import planning
from tff_pcdd.experiment.config import ExperimentConfig
from tff_pcdd.experiment.nonfinite import COUNTS
from tff_pcdd.experiment.simulation import Simulation
from tff_pcdd.federated import head_statistics
from tff_pcdd.training.restored import restore_run, warn_of_round
from tff_pcdd.training.run import Run
from tff_pcdd.training.run_directory import check_calibration
from tff_pcdd.training.run_options import RunOptions


def calibrate_run(
    config: ExperimentConfig,
    calibrated: ExperimentConfig,
    run_dir: str | os.PathLike,
    output_dir: str | os.PathLike,
    options: RunOptions | None = None,
    round_number: int | str | None = None,
    *,
    federation: Federation | None = None,
) -> dict[str, Any]:
    """Re-trains the head of a run's global model, and evaluates and writes the result.

    Clients compute what the calibration needs in one pass over their training samples, with the
    backbone of the checkpoint, which is the backbone of the result. Nothing else is trained. The
    directory is that of a run with the calibration and a single row in metrics.csv; it can be
    evaluated and exported like any other. The run itself is not changed.

    Args:
        config: the settings of the run; only data_dir may differ.
        calibrated: the same settings with a head calibration.
        run_dir: the directory of the run.
        output_dir: the directory of the result, which must not exist. It appears when it is whole.
        options: how and where it is computed, and what is written.
        round_number: the round of the checkpoint, or "best"; as for `evaluate_run`.
        federation: the clients and their samples, if the run did not load them as `config` says.

    Returns:
        The summary, as in summary.json.

    Raises:
        FileNotFoundError: there is no such checkpoint.
        SettingError: the run has a head calibration already, or the directory exists or cannot be
            written to; or as `restore_run`.
        DataError: the run has diverged; or as `restore_run`.
        WriteError: a file cannot be written.
    """
    check_calibration(config, calibrated, output_dir)
    if federation is None:  # Otherwise, the data of the settings are not those of the run.
        planning.check(calibrated)
    target = Path(output_dir)
    run = restore_run(config, run_dir, options, round_number, federation=federation)
    warn_of_round(run, round_number)
    with run.simulation as trained:
        if trained.nonfinite.diverged:
            raise DataError(f"{run_dir} is not calibrated: the run has diverged")
        # Left by a process that was ended.
        partial = target.with_name(f".{target.name}.tmp")
        shutil.rmtree(partial, ignore_errors=True)
        kind = "memory" if trained.store.inline else "disk"
        own = dataclasses.replace(options or RunOptions(), client_store=kind)
        with warned_before():
            result = Run(calibrated, partial, own, federation=trained.federation)
        with result.simulation as simulation:
            start = time.perf_counter()
            measured = _calibrate(trained, simulation)
            measured["seconds"] = time.perf_counter() - start
            stages.enter("evaluating")
            summary = result.write_state(measured)
        files.rename(partial, target)
    return summary


def _calibrate(trained: Simulation, simulation: Simulation) -> dict[str, Any]:
    """Puts the calibrated state of a simulation into another one; returns what was measured."""
    stages.enter("calibrating the head")
    adopted = head_statistics.Adopted(simulation.spec, trained.spec)
    # Not `simulation.state`, which a warm start would have to read.
    state = adopted.server(simulation.invoke(simulation.process.initialize), trained.state)
    earlier = trained.nonfinite.earlier
    simulation.restore(trained.round, state, trained.totals, earlier)
    for client in trained.store.clients:
        simulation.store.put(client, adopted.client(trained.store.get(client)), trained.round)
    sums: Any = {}
    calibration, num_clients = simulation.config.head_calibration, simulation.federation.num_clients
    sent = {"upload_bytes": 0, "download_bytes": 0}
    if calibration.uses_features:
        compute = head_statistics.build_head_sums(simulation.process)
        for found in simulation.in_cohorts(compute):
            sums = tf.nest.map_structure(tf.add, sums, dict(found)) if sums else dict(found)
        sent = {
            "upload_bytes": num_clients * simulation.process.extra_bytes,
            "download_bytes": num_clients * trained.process.download_bytes,
        }
    simulation.restore(trained.round, adopted.calibrated(state, sums), trained.totals, earlier)
    for name, size in sent.items():
        simulation.totals[name] += size
    return {**sent, **{name: simulation.totals[name] for name in COUNTS}}
