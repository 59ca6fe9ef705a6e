"""metrics.csv and summary.json, compared with the copies in the run's newest checkpoint.

Each is replaced by its copy if it is damaged. Nothing here needs TensorFlow.
"""

from __future__ import annotations

import logging
import os
from pathlib import Path

from tff_pcdd import files
from tff_pcdd.errors import DamagedFileError
from tff_pcdd.training.callbacks.csv_log import FILE as METRICS
from tff_pcdd.training.history import History, csv_text
from tff_pcdd.training.run_directory import SUMMARY, recorded


def damage_of_metrics(path: Path, copy: str) -> str | None:
    """What is wrong with metrics.csv; None if it contains all rows of a checkpoint.

    Args:
        path: metrics.csv. It may have later rows, and further columns that are empty in the rows
            of the checkpoint.
        copy: its text when the checkpoint was saved.
    """
    saved = History.parse(copy)
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
        return f"{path} is damaged (its rows differ from those of the checkpoint)"
    return None


def read_history(directory: str | os.PathLike) -> History:
    """Reads the measurements of a run; if metrics.csv is damaged, their copy, with a warning.

    Raises:
        DamagedFileError: the file is damaged, and there is no copy.
    """
    path = Path(directory) / METRICS
    record = recorded(path.parent)
    if record is not None and (damage := damage_of_metrics(path, record.metrics)):
        logging.warning("%s; using the copy in the checkpoint of round %d", damage, record.round)
        return History.parse(record.metrics)
    return History.read(path)


def warn_of_damage(directory: Path, history: History) -> None:
    """Warns if metrics.csv does not contain the measurements of a checkpoint."""
    if damage := damage_of_metrics(directory / METRICS, history.text()):
        logging.warning("%s; restored from the checkpoint", damage)


def repair(directory: Path) -> None:
    """Replaces metrics.csv and summary.json of a finished run if they are damaged; warns then.

    Raises:
        SettingError: another process is writing to the directory.
        WriteError: a file cannot be written.
    """
    path = directory / SUMMARY
    if not path.exists() or (record := recorded(directory)) is None or record.summary is None:
        return
    copies = {}
    if damage := damage_of_metrics(directory / METRICS, record.metrics):
        copies[directory / METRICS] = record.metrics
        logging.warning("%s; restored from the checkpoint", damage)
    if path.read_bytes() != record.summary.encode():
        copies[path] = record.summary
        logging.warning("%s is damaged or was changed; restored from the checkpoint", path)
    if copies:
        with files.locked(directory):
            for target, text in copies.items():
                files.write_text(target, text)
