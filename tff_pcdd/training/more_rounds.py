"""More rounds for a run: it continues as if it had been planned for that many from the start."""

from __future__ import annotations

import contextlib
import logging
from pathlib import Path

from tff_pcdd import files
from tff_pcdd.errors import DataError, SettingError
from tff_pcdd.training import manifests
from tff_pcdd.training.checkpoints import CheckpointManager
from tff_pcdd.training.client_store import ClientStateStore
from tff_pcdd.training.config import ExperimentConfig
from tff_pcdd.training.evaluation_schedule import EvaluationSchedule
from tff_pcdd.training.results import CHECKPOINTS, SUMMARY, answer_files
from tff_pcdd.training.run_directory import fewer_rounds

_logger = logging.getLogger(__name__)


def prepare_more_rounds(
    directory: Path,
    config: ExperimentConfig,
    checkpoints: CheckpointManager,
    schedule: EvaluationSchedule,
    store: ClientStateStore,
) -> None:
    """Turns a run of fewer rounds into an unfinished one, before its config.json is replaced.

    The last round of a run is evaluated in full. If it would have been evaluated differently in the
    longer run, its checkpoint is deleted, so that it is computed again.

    Args:
        directory: the directory of the run, which this process has locked.
        config: the settings of the longer run.
        checkpoints: the checkpoints of the run.
        schedule: what is evaluated after each round but the last one.
        store: the client states of the longer run.

    Raises:
        SettingError: there is no checkpoint to continue from, or the run keeps its client states in
            the other kind of store.
        DataError: the run was made with other data.
        WriteError: the directory cannot be changed.
    """
    planned = fewer_rounds(directory, config)
    if planned is None:
        return
    # Before anything is deleted.
    checkpoints.check(store)
    saved = checkpoints.rounds()
    if saved and saved[-1] == planned and not _is_ordinary(planned, directory, schedule):
        earlier = [number for number in saved[:-1] if checkpoints.is_intact(number)]
        # The first round is computed again like any other.
        if not earlier and planned > 1:
            only = "only checkpoint" if len(saved) == 1 else "only intact checkpoint"
            raise SettingError(
                "rounds",
                config.training.rounds,
                f"the {only} in {directory} is that of round {planned}, which was "
                "evaluated as the last one; overwrite the run",
            )
        _logger.warning(
            "round %d, the last one of %d planned rounds, is computed again: in %d rounds it is "
            "evaluated differently",
            planned,
            planned,
            config.training.rounds,
        )
        checkpoints.forget_after(earlier[-1] if earlier else 0)
    # What else the shorter run has measured is not of the longer one either.
    for name in (SUMMARY, *answer_files(predictions=True)):
        files.remove(directory / name)


def _is_ordinary(round_number: int, directory: Path, schedule: EvaluationSchedule) -> bool:
    """Whether a round has the same evaluations if it is not the last one."""
    columns = ""
    # A damaged checkpoint is not used anyway.
    with contextlib.suppress(DataError):
        columns = manifests.read(directory / CHECKPOINTS, round_number).metrics.partition("\n")[0]
    due = schedule.after_round(round_number)
    # Some diagnostics are measured in the last round only.
    return "diag_" not in columns and due.globally and due.after
