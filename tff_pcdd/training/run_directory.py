"""Runs as a program deals with them: their directories, and whether anything is left to compute.

TensorFlow is imported when something has to be computed, so that a wrong directory is refused, and
a finished run is read, at once.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from etils import epy

from tff_pcdd import files
from tff_pcdd.options import OptionError
from tff_pcdd.training.config import ExperimentConfig, RunOptions

with epy.lazy_imports():
    from tff_pcdd.training import experiment


def run_experiment(
    config: ExperimentConfig,
    output_dir: str | os.PathLike,
    run: RunOptions | None = None,
    *,
    overwrite: bool = False,
    label: str = "",
) -> dict[str, Any]:
    """Runs an experiment, or goes on with it; one that has finished is not set up again.

    Args:
        config: what is computed.
        output_dir: where results go.
        run: how and where it is computed.
        overwrite: drop the results that the directory holds already.
        label: what stands before the progress bar, the method's name by default.

    Returns:
        The summary, as in summary.json.

    Raises:
        OptionError: as `Experiment`; what can be known without TensorFlow is, before it is loaded.
        data.DataError: the data cannot be read.
    """
    directory = Path(output_dir)
    check_directory(directory, config, overwrite)
    summary = None if overwrite else read_summary(directory)
    if summary is None:
        summary = experiment.Experiment(config, directory, run, overwrite=overwrite).run(label)
    return summary


def read_config(run_dir: str | os.PathLike, data_dir: str | None = None) -> ExperimentConfig:
    """The settings of a run.

    Args:
        run_dir: its directory.
        data_dir: where the data are now, if they have moved.

    Raises:
        OptionError: there is no run, or its settings cannot be read.
    """
    path = Path(run_dir) / "config.json"
    if not path.is_file():
        raise OptionError(f"--run_dir={run_dir}: holds no run (there is no config.json)")
    saved = _read_json(path, "run_dir")
    try:
        return ExperimentConfig.from_json({**saved, "data_dir": data_dir or saved["data_dir"]})
    except KeyError as error:
        raise OptionError(f"--run_dir={run_dir}: config.json has no {error.args[0]}") from None
    except (OptionError, TypeError) as error:
        raise OptionError(f"--run_dir={run_dir}: config.json cannot be used: {error}") from error


def read_summary(directory: Path) -> dict[str, Any] | None:
    """The summary of a run that has finished.

    Raises:
        OptionError: it cannot be read.
    """
    path = directory / "summary.json"
    return _read_json(path, "output_dir") if path.exists() else None


def _read_json(path: Path, flag: str) -> dict[str, Any]:
    """An object that a run wrote, in the directory that a flag names."""
    try:
        values = json.loads(path.read_text())
    except ValueError as error:
        reason = str(error)
    else:
        if isinstance(values, dict):
            return values
        reason = "no object"
    remedy = "put it back" if flag == "run_dir" else "put it back, or --overwrite the run"
    raise OptionError(f"--{flag}={path.parent}: {path.name} is damaged ({reason}); {remedy}")


def check_directory(directory: Path, config: ExperimentConfig, overwrite: bool) -> None:
    """Refuses a directory that holds something else than this run, or in which one goes on."""
    occupied = files.check_output(directory, "run", lambda path: path.name == "config.json")
    files.refuse_locked(directory)
    if overwrite or not occupied:
        return
    saved, wanted = _read_json(directory / "config.json", "output_dir"), config.to_json()
    differing = [
        f"--{name} (there {saved.get(name)}, here {wanted.get(name)})"
        for name in sorted({*saved, *wanted})
        if saved.get(name) != wanted.get(name)
    ]
    if differing:
        raise OptionError(
            f"--output_dir={directory}: holds a run with another {', '.join(differing)}; "
            "name another directory, or --overwrite it"
        )
