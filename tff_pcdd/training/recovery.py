"""The results of a run, compared with the copies in its newest checkpoint.

What is damaged is replaced by its copy, or computed again. Nothing here needs TensorFlow.
"""

from __future__ import annotations

import json
import logging
import os
from pathlib import Path
from typing import Any

from tff_pcdd import directories, files
from tff_pcdd.errors import DamagedFileError, DataError
from tff_pcdd.experiment.config import ExperimentConfig
from tff_pcdd.experiment.history import History, csv_text
from tff_pcdd.training import manifests
from tff_pcdd.training.file_names import CHECKPOINTS, METRICS, SUMMARY, answer_files
from tff_pcdd.training.manifests import Manifest
from tff_pcdd.training.run_directory import (
    check_entries,
    fewer_rounds,
    is_being_deleted,
    read_json,
)

_logger = logging.getLogger(__name__)


def recorded(directory: Path) -> Manifest | None:
    """The manifest of the newest intact checkpoint of a run; None if there is none.

    Raises:
        DamagedFileError: neither metrics.csv nor summary.json agrees with it, so the checkpoint may
            belong to another run.
    """
    record = manifests.newest_of(directory)
    if (
        record is not None
        and record.summary is not None
        and (directory / SUMMARY).exists()
        and _summary_differs(directory, record)
        and (damage := damage_of_metrics(directory, record.metrics))
    ):
        manifest = manifests.manifest_path(directory / CHECKPOINTS, record.round)
        raise DamagedFileError(
            f"{damage}, and so does {SUMMARY}: they may be damaged, or {manifest} may belong to "
            "another run; restore them, or overwrite the run"
        )
    return record


def damage_of_metrics(directory: Path, copy: str) -> str | None:
    """What is wrong with metrics.csv; None if it contains all rows of a checkpoint.

    Args:
        directory: the directory of the run.
        copy: the text of metrics.csv when the checkpoint was saved. The file may have later rows,
            and further columns that are empty in the rows of the checkpoint.
    """
    path, saved = directory / METRICS, History.parse(copy)
    if not path.exists():
        return f"{path} is missing"
    try:
        found = History.read(path)
    except DamagedFileError as error:
        return str(error)
    rows = [row for row in found if row["round"] <= saved[-1]["round"]] if len(saved) else []
    further = [name for name in found.columns if name not in saved.columns]
    if csv_text(saved.columns, rows) != copy or any(
        row[name] is not None for name in further for row in rows
    ):
        return f"{path} differs from its copy in the checkpoint"
    return None


def _summary_differs(directory: Path, record: Manifest) -> bool:
    return files.read_bytes(directory / SUMMARY) != (record.summary or "").encode()


def read_summary(directory: str | os.PathLike) -> dict[str, Any] | None:
    """Reads the summary of a finished run; None if the run has not finished.

    If the file differs from the copy in the run's newest checkpoint, the copy is returned, with a
    warning.

    Raises:
        SettingError: the file is damaged, and there is no copy.
        DamagedFileError: the checkpoint may belong to another run.
    """
    path = Path(directory) / SUMMARY
    if is_being_deleted(path.parent) or not path.exists():
        return None
    check_entries(path.parent, "output_dir")
    record = recorded(path.parent)
    if record is None or record.summary is None:
        return read_json(path, "output_dir")
    if _summary_differs(path.parent, record):
        _logger.warning(
            "%s is damaged or was changed; using the copy in the checkpoint of round %d",
            path,
            record.round,
        )
    return json.loads(record.summary)


def finished_summary(directory: Path, config: ExperimentConfig) -> dict[str, Any] | None:
    """The summary of a run with all rounds of `config`; None if it has not finished them."""
    return None if fewer_rounds(directory, config) else read_summary(directory)


def read_history(directory: str | os.PathLike) -> History:
    """Reads the measurements of a run; if metrics.csv is damaged, their copy, with a warning.

    Raises:
        DamagedFileError: the file is damaged, and there is no copy, or it may be of another run.
    """
    directory = Path(directory)
    record = recorded(directory)
    if record is not None and (damage := damage_of_metrics(directory, record.metrics)):
        _logger.warning("%s; using the copy in the checkpoint of round %d", damage, record.round)
        return History.parse(record.metrics)
    return History.read(directory / METRICS)


def warn_of_lost_checkpoint(directory: Path) -> None:
    """Warns if the newest checkpoint of a finished run is damaged; checkpoints may be deleted."""
    checkpoints = directory / CHECKPOINTS
    numbers = manifests.rounds(checkpoints)
    if not numbers:
        return
    try:
        manifests.read_intact(checkpoints, numbers[-1])
    except DataError as error:
        _logger.warning(
            "%s; the results of the run are complete, but evaluations and exports use an earlier "
            "checkpoint",
            error,
        )


def missing_answers(directory: Path, record: Manifest | None, *, predictions: bool) -> list[str]:
    """The files of the models' answers that have to be computed, or computed again."""
    saved = {} if record is None else record.answers
    return [
        name
        for name in answer_files(predictions=predictions)
        if saved.get(name) is None or manifests.checksum_of(directory / name) != saved[name]
    ]


def lacks_answers(directory: Path, *, predictions: bool) -> bool:
    """Whether a finished run lacks files of its models' answers that can be computed again.

    Warns of each file that is damaged.
    """
    record = recorded(directory)
    if record is None or record.summary is None:
        return False
    missing = missing_answers(directory, record, predictions=predictions)
    if not missing:
        return False
    checkpoints = directory / CHECKPOINTS
    try:
        manifests.check_file(manifests.arrays_path(checkpoints, record.round), record.arrays)
    except DataError as error:
        reason = f"cannot be computed again, because {error}"
        _logger.warning("%s: damaged, changed or missing; %s", ", ".join(missing), reason)
        return False
    if damaged := [name for name in missing if name in record.answers]:
        _logger.warning("%s: damaged, changed or missing; computed again", ", ".join(damaged))
    return True


def repair(directory: Path) -> None:
    """Replaces metrics.csv and summary.json of a finished run if they are damaged; warns then.

    Raises:
        DamagedFileError: as `recorded`.
        SettingError: another process is writing to the directory.
        WriteError: a file cannot be written.
    """
    metrics, summary = directory / METRICS, directory / SUMMARY
    if not summary.exists():
        return
    warn_of_lost_checkpoint(directory)
    record = recorded(directory)
    if record is None or record.summary is None:
        return
    copies = {}
    damage = damage_of_metrics(directory, record.metrics)
    if damage is None and not files.read_bytes(metrics).endswith(b"\n"):
        damage = f"{metrics} has an incomplete last line"
    if damage:
        copies[metrics] = record.metrics
        _logger.warning("%s; restored from the checkpoint", damage)
    if _summary_differs(directory, record):
        copies[summary] = record.summary
        _logger.warning("%s is damaged or was changed; restored from the checkpoint", summary)
    if copies:
        with directories.locked(directory):
            for path, text in copies.items():
                files.write_text(path, text)
