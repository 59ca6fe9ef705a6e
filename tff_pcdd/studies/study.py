"""Studies: many runs in one directory, computed one after the other.

Comparisons and sweeps are studies. A finished run is not repeated, and an interrupted one is
resumed. If a run fails, the others continue, and the next call tries it again. Several processes
can share a study: each computes the runs that are free.
"""

from __future__ import annotations

import collections
import dataclasses
import os
import time
import traceback
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from tff_pcdd import disks, files, stages
from tff_pcdd.errors import DataError, LockedError, SettingError, WriteError
from tff_pcdd.runtime import RuntimeStartError
from tff_pcdd.training import ExperimentConfig, History, RunOptions, planning, run_experiment
from tff_pcdd.training.history import csv_text
from tff_pcdd.training.results import read_history
from tff_pcdd.training.run_directory import check_directory, finished_summary

# Seconds until the runs of another process are looked at again.
_PAUSE = 1.0

# Where the tracebacks of failed runs are written.
FAILURES = "failures.txt"


@dataclasses.dataclass(frozen=True)
class StudyRun:
    """One run of a study and its result.

    Attributes:
        config: the settings of the experiment.
        folder: the directory of the run.
        label: the name of the run in messages.
        summary: the contents of summary.json; None until the run has finished.
        failure: the traceback if the run failed.
    """

    config: ExperimentConfig
    folder: Path
    label: str = ""
    summary: Mapping[str, Any] | None = None
    failure: str = ""

    @property
    def diverged(self) -> bool:
        """Whether the run has finished, but diverged: it has no usable results."""
        return bool(self.summary and self.summary.get("diverged"))

    @property
    def usable(self) -> bool:
        """Whether the run has results that can be compared."""
        return self.summary is not None and not self.diverged

    def history(self) -> History:
        """The measurements of the run, from its csv file or the copy in its checkpoint."""
        return read_history(self.folder)


def check(
    runs: Sequence[StudyRun],
    directory: Path,
    *,
    holds: str,
    known: Collection[str],
    overwrite: bool,
) -> None:
    """Checks, before the first run, that the results of all runs can be written.

    Args:
        runs: the runs, whose folders are in `directory`.
        directory: the directory of the study.
        holds: what the directory may already contain, such as "sweep", for the error.
        known: names of files by which such a directory is recognized, beside the runs' folders.
        overwrite: whether results in the runs' folders may be deleted. Then no other process may
            be computing one of them.

    Raises:
        SettingError: the directory or the folder of a run contains something else.
    """
    entries = {*known, *(run.folder.relative_to(directory).parts[0] for run in runs)}
    files.check_output(directory, holds, lambda path: path.name in entries)
    for name in (*known, FAILURES):
        if (directory / name).is_dir():
            reason = f"{name} is a directory; remove it, or choose another directory"
            raise SettingError("output_dir", str(directory), reason)
    for run in runs:
        check_directory(run.folder, run.config, overwrite, shared=not overwrite)


def run_all(
    runs: Sequence[StudyRun],
    directory: Path,
    options: RunOptions | None,
    *,
    overwrite: bool,
    after_each: Callable[[Sequence[StudyRun]], None],
) -> list[StudyRun]:
    """Computes all runs that are not finished.

    Runs that another process is computing are left to it, until only such runs are left. Then this
    process waits for them, and takes over those that the other one gives up.

    Args:
        runs: the runs, whose folders are in `directory`.
        directory: the directory of the study.
        options: how and where the runs are computed.
        overwrite: delete earlier results in the runs' folders and start again.
        after_each: called after each run, with all runs, to write the results so far.

    Returns:
        The runs with their summaries and failures. The failures are also written to failures.txt.

    Raises:
        SettingError: a run cannot be computed with its settings; nothing has been computed then,
            unless it takes the data to see it.
        DataError: the data of the first run cannot be read.
        RuntimeStartError: the runtime cannot be started for the first run.
        WriteError: a result cannot be written. The next call continues from there.
    """
    runs = list(runs)
    disks.check_writable(directory)
    _remove_leftovers(directory)
    stages.importing()
    for run in runs:
        if overwrite or finished_summary(run.folder, run.config) is None:
            run.config.data.source.check()
            planning.check(run.config)
    left = collections.deque(range(len(runs)))
    busy = 0
    while left:
        number = left.popleft()
        run, label = runs[number], f"[{number + 1}/{len(runs)}] {runs[number].label}"
        try:
            summary = run_experiment(
                run.config, run.folder, options, overwrite=overwrite, label=label
            )
            runs[number] = dataclasses.replace(run, summary=summary)
        except LockedError:
            if overwrite:
                raise
            left.append(number)
            busy += 1
            if busy >= len(left):
                stages.enter(f"waiting for {len(left)} runs that another process computes")
                time.sleep(_PAUSE)
                busy = 0
            continue
        except WriteError:
            # The other runs could not be written either.
            raise
        except Exception as error:
            # Such an error of the first run most likely affects all runs.
            if number == 0 and isinstance(error, (SettingError, DataError, RuntimeStartError)):
                raise
            runs[number] = dataclasses.replace(run, failure=traceback.format_exc())
        busy = 0
        files.make_directory(directory)
        _write_failures(directory, runs)
        after_each(runs)
    return runs


def _remove_leftovers(directory: Path) -> None:
    """Removes the temporary files of processes that have ended; others may be writing theirs."""
    for path in directory.glob(".*.tmp"):
        process = path.name.split(".")[-2]
        if not (process.isdecimal() and len(process) < 10 and _is_other(int(process))):
            files.remove(path)


def _is_other(process: int) -> bool:
    """Whether a process other than this one runs under a number."""
    if process == os.getpid():
        return False
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


def failures(runs: Sequence[StudyRun]) -> list[str]:
    """A line for each run that failed: its label and the last line of the traceback."""
    return [f"{run.label}: {run.failure.strip().splitlines()[-1]}" for run in runs if run.failure]


def _write_failures(directory: Path, runs: Sequence[StudyRun]) -> None:
    path = directory / FAILURES
    failed = [run for run in runs if run.failure]
    if failed:
        files.write_text(path, "\n".join(f"{run.label}\n\n{run.failure}" for run in failed))
    else:
        files.remove(path)


def write_csv(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Writes rows as a csv file, with all columns that occur in any of them."""
    columns = list(dict.fromkeys(name for row in rows for name in row))
    files.write_text(path, csv_text(columns, rows))
