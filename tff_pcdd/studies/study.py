"""Studies: many runs in one directory, computed one after the other or several at a time.

Comparisons and sweeps are studies. A finished run is not repeated, and an interrupted one is
resumed. If a run fails, the others continue, and the next call tries it again. Several processes
can share a study: each computes the runs that are free.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import functools
import time
import traceback
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from tff_pcdd import directories, files, findings, heavy, stages
from tff_pcdd.data import cache
from tff_pcdd.errors import DataError, LockedError, SettingError, UnwritableError, WriteError
from tff_pcdd.experiment import planning
from tff_pcdd.experiment.history import csv_text
from tff_pcdd.results import run_evidence
from tff_pcdd.results.run_results import Result, Results
from tff_pcdd.runtime import RuntimeStartError
from tff_pcdd.runtime.ray import cluster
from tff_pcdd.studies import own_methods
from tff_pcdd.studies.parallel import ParallelOptions
from tff_pcdd.tables import grouped
from tff_pcdd.training import (
    ExperimentConfig,
    History,
    RunOptions,
    earlier_data,
    run_experiment,
    warm_start,
)
from tff_pcdd.training.file_names import FAILURES
from tff_pcdd.training.recovery import finished_summary, read_history
from tff_pcdd.training.run_directory import check_directory
from tff_pcdd.training.start import paused_result

# Seconds until the runs of another process are looked at again.
_PAUSE = 1.0

# Errors that a study handles differently from others.
_KNOWN_ERRORS = (SettingError, DataError, RuntimeStartError, WriteError)


@dataclasses.dataclass(frozen=True)
class StudyRun:
    """One run of a study and its result.

    Attributes:
        config: the settings of the experiment.
        folder: the directory of the run.
        label: the name of the run in messages.
        summary: the contents of summary.json; None until the run has finished.
        failure: the traceback if the run failed.
        pause_after: the round after which the run pauses, see `run_experiment`; None for none.
    """

    config: ExperimentConfig
    folder: Path
    label: str = ""
    summary: Mapping[str, Any] | None = None
    failure: str = ""
    pause_after: int | None = None

    @property
    def partition(self) -> str:
        """The partition, as it is shown."""
        return self.config.data.partition.describe()

    @property
    def limits(self) -> dict[str, Any]:
        """The arguments of `run_experiment` that end a call before the last round."""
        return {} if self.pause_after is None else {"pause_after": self.pause_after}

    @property
    def diverged(self) -> bool:
        """Whether the run has finished, but diverged: it has no usable results."""
        return bool(self.summary and self.summary.get("diverged"))

    @property
    def usable(self) -> bool:
        """Whether the run has results that can be compared."""
        return self.summary is not None and not self.diverged

    @property
    def values(self) -> dict[str, Any]:
        """The summary without the findings: one value for each column of a table of runs."""
        return {name: v for name, v in (self.summary or {}).items() if name != findings.KEY}

    def history(self) -> History:
        """The measurements of the run, from its csv file or the copy in its checkpoint."""
        return read_history(self.folder)

    def result(self) -> Result:
        """What the run has measured; it must have finished."""
        assert self.summary is not None
        return Result(
            partition=self.partition,
            method=self.config.algorithm,
            seed=str(self.config.seed),
            diverged=self.diverged,
            values=self.values,
            folder=self.folder,
            name=self.label,
            load_findings=functools.partial(run_evidence.findings_of, self.folder, self.summary),
            load_history=self.history,
        )


def results_of(runs: Iterable[StudyRun]) -> Results:
    """The results of the runs that have finished."""
    return Results([run.result() for run in runs if run.summary is not None])


def by_method(runs: Iterable[StudyRun]) -> dict[str, list[StudyRun]]:
    """The runs of each method, finished or not, by its name."""
    return grouped((run.config.algorithm, run) for run in runs)


def by_partition(runs: Iterable[StudyRun]) -> dict[str, list[StudyRun]]:
    """The runs of each partition, finished or not, by its description."""
    return grouped((run.partition, run) for run in runs)


def baselines(runs: Iterable[StudyRun]) -> list[str]:
    """The methods among the runs that are not federated; they are not ranked."""
    names = dict.fromkeys(run.config.algorithm for run in runs if run.config.method.baseline)
    return list(names)


class Failure(NamedTuple):
    """Why a run failed.

    Attributes:
        text: the traceback.
        error: the error, if a study handles it differently from others.
    """

    text: str
    error: Exception | None = None

    @classmethod
    def of(cls, error: Exception) -> Failure:
        """Describes the error that is being handled."""
        return cls(traceback.format_exc(), error if isinstance(error, _KNOWN_ERRORS) else None)


class Computer(Protocol):
    """What computes the runs of a study."""

    @property
    def busy(self) -> int:
        """The number of runs whose outcomes have not been returned yet."""

    @property
    def free(self) -> bool:
        """Whether another run can be started."""

    def begin(self, configs: Sequence[ExperimentConfig], runs: int) -> None:
        """Checks the runs that are not finished, of a number of runs in total."""

    def start(self, number: int, run: StudyRun, label: str, *, overwrite: bool) -> None:
        """Starts to compute a run.

        Args:
            number: its position in the study.
            run: the run.
            label: its name in the progress display.
            overwrite: whether earlier results are deleted.
        """

    def wait(self, seconds: float | None = None) -> tuple[int, Mapping[str, Any] | Failure] | None:
        """The number of a run that has ended, and its summary or why it failed.

        None if none ends in so many seconds; without a number, one is waited for.
        """

    def count(self) -> None:
        """Counts a run as done."""


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
        holds: what the directory may already contain, such as "sweep", for the error.
        known: names of files by which such a directory is recognized, beside the runs' folders.
        overwrite: whether results in the runs' folders may be deleted. Then no other process may
            be computing one of them.

    Raises:
        SettingError: the directory or the folder of a run contains something else, or a run cannot
            start from the weights that `warm_start` names.
    """
    entries = {*known, *(run.folder.relative_to(directory).parts[0] for run in runs)}
    directories.check_output(directory, holds, entries)
    within = [run.folder.relative_to(directory) for run in runs]
    folders = {str(part) for folder in within for part in (folder, *folder.parents) if part.name}
    directories.refuse_links(directory, sorted(entries | folders), inside=False)
    for name in (*known, FAILURES):
        if (directory / name).is_dir():
            reason = f"{name} is a directory; remove it, or choose another directory"
            raise SettingError("output_dir", str(directory), reason)
    for run in runs:
        check_directory(run.folder, run.config, overwrite, shared=not overwrite)
    warm_start.check(((run.config, run.folder) for run in runs), overwrite=overwrite)


@earlier_data.listed_once()
def run_all(
    runs: Sequence[StudyRun],
    directory: Path,
    computer: Computer,
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
        computer: what computes them; see the function `computer`.
        overwrite: delete earlier results in the runs' folders and start again.
        after_each: called with all runs after each run that was not finished yet, and after the
            last one, to write the results so far.

    Returns:
        The runs with their summaries and failures. The failures are also written to failures.txt.

    Raises:
        SettingError: a run cannot be computed with its settings; nothing has been computed then,
            unless it takes the data to see it. Or the data have changed since another run.
        DataError: the data of the first run cannot be read.
        RuntimeStartError: the runtime cannot be started for the first run, or a process for runs.
        WriteError: a result cannot be written. The next call continues from there.
    """
    runs = list(runs)
    directories.check_writable(directory)
    files.remove_leftovers(directory)
    finished = [not overwrite and _is_done(run) for run in runs]
    configs = [run.config for run, done in zip(runs, finished, strict=True) if not done]
    for config in configs:
        config.data.source.check()
    if not overwrite:
        earlier_data.refuse_mixture(((run.config, run.folder) for run in runs), configs)
    computer.begin(configs, len(runs))
    left = collections.deque(range(len(runs)))
    # How many runs in a row another process computes.
    taken = 0
    while left or computer.busy:
        while left and computer.free and taken < len(left):
            number = left.popleft()
            label = f"[{number + 1}/{len(runs)}] {runs[number].label}"
            computer.start(number, runs[number], label, overwrite=overwrite)
        ended = None
        if computer.busy:
            ended = computer.wait(_PAUSE if taken else None)
        else:
            stages.enter(f"waiting for {len(left)} runs that another process computes")
            time.sleep(_PAUSE)
        if ended is None:
            taken = 0
            continue
        number, outcome = ended
        if not overwrite and _is_taken(outcome):
            left.append(number)
            taken += 1
            continue
        runs[number] = _with_outcome(runs[number], outcome, is_first=number == 0)
        taken = 0
        computer.count()
        files.make_directory(directory)
        write_failures(directory, runs)
        # The tables of large studies take seconds.
        if not finished[number] or not (left or computer.busy):
            after_each(runs)
    return runs


def _is_done(run: StudyRun) -> bool:
    """Whether a run has been computed up to its end, or its pause."""
    if finished_summary(run.folder, run.config) is not None:
        return True
    limit = run.pause_after
    return limit is not None and paused_result(run.config, run.folder, limit) is not None


def _is_taken(outcome: Mapping[str, Any] | Failure) -> bool:
    """Whether another process computes a run."""
    return isinstance(outcome, Failure) and isinstance(outcome.error, LockedError)


def _with_outcome(
    run: StudyRun, outcome: Mapping[str, Any] | Failure, *, is_first: bool
) -> StudyRun:
    """A run that has ended; raises its error again if it most likely affects all runs."""
    if not isinstance(outcome, Failure):
        summary = None if "paused" in outcome else outcome
        return dataclasses.replace(run, summary=summary, failure="")
    general: tuple[type[Exception], ...] = (LockedError, UnwritableError, WriteError)
    if isinstance(outcome.error, _KNOWN_ERRORS if is_first else general):
        raise outcome.error
    return dataclasses.replace(run, failure=outcome.text)


def computer(
    options: RunOptions | None, parallel: ParallelOptions | None
) -> contextlib.AbstractContextManager[Computer]:
    """What computes the runs of studies in a block; by default one at a time, in this process.

    Raises:
        SettingError: runs cannot be computed at the same time in this way.
    """
    parallel = parallel or ParallelOptions()
    parallel.check(options)
    if parallel.parallel_runs == 1:
        return ThisProcess(options)
    from tff_pcdd.studies.parallel_runs import ParallelRuns

    return ParallelRuns(parallel, options)


def failures(runs: Sequence[StudyRun]) -> list[str]:
    """A line for each run that failed: its label and the last line of the traceback."""
    return [f"{run.label}: {run.failure.strip().splitlines()[-1]}" for run in runs if run.failure]


def write_failures(directory: Path, runs: Sequence[StudyRun]) -> None:
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


class ThisProcess:
    """Computes runs one after the other, in this process.

    As a context manager, this object keeps data sets in memory, because most runs of a study train
    on the same, and with the runtime `ray` the processes that Ray has started.
    """

    def __init__(self, options: RunOptions | None):
        self._options = options
        self._stack = contextlib.ExitStack()
        self._next: tuple[int, StudyRun, str, bool] | None = None

    def __enter__(self) -> ThisProcess:
        self._stack.enter_context(cluster.kept())
        cache.keep()
        self._stack.callback(cache.forget)
        return self

    def __exit__(self, *exc_info: Any) -> None:
        self._stack.__exit__(*exc_info)

    @property
    def busy(self) -> int:
        return int(self._next is not None)

    @property
    def free(self) -> bool:
        return self._next is None

    def begin(self, configs: Sequence[ExperimentConfig], runs: int) -> None:
        if configs:
            heavy.load("tensorflow")
        planning.check_all(configs)
        own_methods.check(configs, (self._options or RunOptions()).compute)

    def start(self, number: int, run: StudyRun, label: str, *, overwrite: bool) -> None:
        self._next = (number, run, label, overwrite)

    def wait(self, seconds: float | None = None) -> tuple[int, Mapping[str, Any] | Failure] | None:
        assert self._next is not None
        (number, run, label, overwrite), self._next = self._next, None
        try:
            return number, run_experiment(
                run.config,
                run.folder,
                self._options,
                overwrite=overwrite,
                label=label,
                report=False,
                **run.limits,
            )
        except Exception as error:
            return number, Failure.of(error)

    def count(self) -> None:
        """There is no display of all runs."""
