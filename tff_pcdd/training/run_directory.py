"""The directory of a run: what it may hold, and the settings and the summary in it.

No TensorFlow is needed here, so a directory that cannot be used is refused, and a finished run is
read, at once.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from tff_pcdd import files
from tff_pcdd.errors import SettingError
from tff_pcdd.training.config import ExperimentConfig

CONFIG = "config.json"
SUMMARY = "summary.json"

# Settings without which config.json is not that of a run.
_ALWAYS_THERE = ("algorithm", "dataset", "model")


def check_directory(directory: Path, config: ExperimentConfig, overwrite: bool) -> None:
    """Refuses a directory that cannot take the results of a run; nothing is written.

    Args:
        directory: it need not exist.
        config: the settings of the run.
        overwrite: whether results of other settings may be dropped.

    Raises:
        SettingError: the directory holds something else than this run, or another process is
            writing to it.
    """
    occupied = files.check_output(directory, "run", lambda path: path.name == CONFIG)
    files.refuse_locked(directory)
    if overwrite or not occupied:
        return
    saved, wanted = _read_json(directory / CONFIG, "output_dir"), config.to_settings()
    differing = [
        f"{name} (there {saved.get(name)}, here {wanted.get(name)})"
        for name in sorted({*saved, *wanted})
        if saved.get(name) != wanted.get(name)
    ]
    if differing:
        raise SettingError(
            "output_dir",
            directory,
            f"holds a run with different settings: {', '.join(differing)}; name another "
            "directory, or overwrite it",
        )


def write_config(directory: Path, config: ExperimentConfig) -> None:
    """Writes the effective settings."""
    files.write_text(directory / CONFIG, json.dumps(config.to_settings(), indent=2) + "\n")


def write_summary(directory: Path, summary: dict[str, Any]) -> None:
    """Writes the summary, which marks the run as finished."""
    files.write_text(directory / SUMMARY, json.dumps(summary, indent=2) + "\n")


def read_summary(directory: str | os.PathLike) -> dict[str, Any] | None:
    """The summary of a finished run; None if the run has not finished.

    Raises:
        SettingError: it cannot be read.
    """
    path = Path(directory) / SUMMARY
    return _read_json(path, "output_dir") if path.exists() else None


def read_config(run_dir: str | os.PathLike, data_dir: str | None = None) -> ExperimentConfig:
    """The settings of a run.

    Args:
        run_dir: its directory.
        data_dir: where the data are now, if they have moved since.

    Raises:
        SettingError: there is no run, or its settings cannot be used.
    """
    path = Path(run_dir) / CONFIG
    if not path.is_file():
        raise SettingError("run_dir", run_dir, f"holds no run: there is no {CONFIG}")
    saved = _read_json(path, "run_dir")
    for name in _ALWAYS_THERE:
        if name not in saved:
            raise SettingError("run_dir", run_dir, f"{CONFIG} has no {name}")
    if data_dir is not None:
        saved["data_dir"] = data_dir
    try:
        return ExperimentConfig.from_settings(**saved)
    except (SettingError, TypeError) as error:
        raise SettingError("run_dir", run_dir, f"{CONFIG} cannot be used: {error}") from error


def _read_json(path: Path, setting: str) -> dict[str, Any]:
    """An object that a run wrote into the directory that a setting names."""
    try:
        values = json.loads(path.read_text())
    except ValueError as error:
        reason = str(error)
    else:
        if isinstance(values, dict):
            return values
        reason = "not a JSON object"
    remedy = "restore it" if setting == "run_dir" else "restore it, or overwrite the run"
    raise SettingError(setting, path.parent, f"{path.name} is damaged ({reason}); {remedy}")
