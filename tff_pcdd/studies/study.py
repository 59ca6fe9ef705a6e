"""A study: many runs in one directory, one after the other, as comparisons and sweeps have them.

A finished run is not repeated, an interrupted one is resumed, and one that fails is left for the
next call while the others go on.
"""

from __future__ import annotations

import dataclasses
import traceback
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from tff_pcdd import files
from tff_pcdd.errors import DataError, SettingError
from tff_pcdd.runtime import RuntimeStartError
from tff_pcdd.training import ExperimentConfig, History, RunOptions, run_experiment
from tff_pcdd.training.history import csv_text
from tff_pcdd.training.run_directory import check_directory

# Where the tracebacks of failed runs are written.
FAILURES = "failures.txt"


@dataclasses.dataclass(frozen=True)
class StudyRun:
    """One run of a study, and what came out.

    Attributes:
        config: what is computed.
        folder: where.
        label: what it is called in print.
        summary: as in summary.json; None until the run has finished.
        failure: the traceback of a run that failed.
    """

    config: ExperimentConfig
    folder: Path
    label: str = ""
    summary: Mapping[str, Any] | None = None
    failure: str = ""

    def history(self) -> History:
        """The measurements of the run, from its csv file."""
        return History.read(self.folder / "metrics.csv")


def check(
    runs: Sequence[StudyRun],
    directory: Path,
    *,
    holds: str,
    known: Collection[str],
    overwrite: bool,
) -> None:
    """Refuses a directory that cannot take all of its runs, before the first of them.

    Args:
        runs: with folders in `directory`.
        directory: where everything goes.
        holds: what the directory may contain already, for a message.
        known: names of files that show that it does, beside the runs' folders.
        overwrite: whether the contents of the runs' folders may be dropped.

    Raises:
        SettingError: the directory or a run's folder holds something else.
    """
    entries = {*known, *(run.folder.relative_to(directory).parts[0] for run in runs)}
    files.check_output(directory, holds, lambda path: path.name in entries)
    for run in runs:
        check_directory(run.folder, run.config, overwrite)


def run_all(
    runs: Sequence[StudyRun],
    directory: Path,
    options: RunOptions | None,
    *,
    overwrite: bool,
    after_each: Callable[[Sequence[StudyRun]], None],
) -> list[StudyRun]:
    """Runs all that are not finished.

    Args:
        runs: with folders in `directory`.
        directory: where everything goes.
        options: how and where they are computed.
        overwrite: repeat what the directory holds already.
        after_each: called with all runs whenever one has ended, to write what is known so far.

    Returns:
        The runs with their summaries and failures; the latter are also in failures.txt.

    Raises:
        SettingError: the first run cannot be run.
        DataError: the data of the first run cannot be read.
        RuntimeStartError: the runtime cannot be started for the first run.
    """
    runs = list(runs)
    for number, run in enumerate(runs):
        label = f"[{number + 1}/{len(runs)}] {run.label}"
        try:
            summary = run_experiment(
                run.config, run.folder, options, overwrite=overwrite, label=label
            )
            runs[number] = dataclasses.replace(run, summary=summary)
        except Exception as error:
            # What is wrong with the first run is most likely wrong with all of them.
            if number == 0 and isinstance(error, (SettingError, DataError, RuntimeStartError)):
                raise
            runs[number] = dataclasses.replace(run, failure=traceback.format_exc())
        directory.mkdir(parents=True, exist_ok=True)
        _write_failures(directory, runs)
        after_each(runs)
    return runs


def failures(runs: Sequence[StudyRun]) -> list[str]:
    """A line for each run that failed: its name and the last line of its traceback."""
    return [f"{run.label}: {run.failure.strip().splitlines()[-1]}" for run in runs if run.failure]


def _write_failures(directory: Path, runs: Sequence[StudyRun]) -> None:
    path = directory / FAILURES
    failed = [run for run in runs if run.failure]
    if failed:
        files.write_text(path, "\n".join(f"{run.label}\n\n{run.failure}" for run in failed))
    else:
        path.unlink(missing_ok=True)


def write_csv(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Writes a table with all columns that any of its rows has."""
    columns = list(dict.fromkeys(name for row in rows for name in row))
    files.write_text(path, csv_text(columns, rows))
