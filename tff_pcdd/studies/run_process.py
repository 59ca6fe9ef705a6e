"""Computes runs of a study in a process that Ray has started, and reports on them.

Such a process computes one run after the other, like a study without Ray. It reports stages, rounds
and log messages through a queue, which the process of the study reads.
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import logging
import os
import pickle
import sys
import textwrap
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tff_pcdd import heavy, modules
from tff_pcdd.data import cache
from tff_pcdd.errors import DataError, SettingError, WriteError
from tff_pcdd.experiment import planning
from tff_pcdd.runtime import RuntimeStartError
from tff_pcdd.studies import run_reports
from tff_pcdd.studies.run_reports import News
from tff_pcdd.training import ExperimentConfig, RunOptions, run_experiment

# Errors that a study handles differently from others; only these are sent back as objects.
_KNOWN_ERRORS = (SettingError, DataError, RuntimeStartError, WriteError)
# Loggers that get the same levels as in the process of the study.
_LOGGERS = ("", "absl", "tensorflow", "tff_pcdd")
# What a run imports; that takes seconds.
_IMPORTED_FIRST = ("tensorflow", "tensorflow_federated", "tff_pcdd.training.run")


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

    @classmethod
    def of_process(cls, error: Exception) -> Failure:
        """Describes an error of Ray: the process of the run has died, with the reason last."""
        lost = "the process of the run has ended, also that of a second try"
        return cls(f"{error}\n\n{lost}: {textwrap.shorten(str(error), 500, placeholder=' …')}")


class Job(NamedTuple):
    """A run to compute.

    Attributes:
        config, folder, options, overwrite, label: as for `run_experiment`.
        cores: the CPU cores of the run; if empty, it may use all cores.
        limits: further arguments of `run_experiment`, see `StudyRun.limits`.
    """

    config: ExperimentConfig
    folder: Path
    options: RunOptions
    overwrite: bool
    label: str
    cores: frozenset[int] = frozenset()
    limits: Mapping[str, int] | None = None


@dataclasses.dataclass(frozen=True)
class Surroundings:
    """What a process needs in order to compute runs as the process of the study would.

    Attributes:
        directory: the working directory, for relative paths.
        names: the user's modules to import.
        environment: environment variables; None removes one.
        levels: the levels of loggers, by name.
        threads: number of clients that are computed at the same time, if neither the settings nor
            the cores of a run determine it.
    """

    directory: str
    names: tuple[str, ...]
    environment: Mapping[str, str | None]
    levels: Mapping[str, int]
    threads: int

    @classmethod
    def of_this_process(
        cls, options: RunOptions, environment: Mapping[str, str | None], threads: int
    ) -> Surroundings:
        levels = {name: logging.getLogger(name).level for name in _LOGGERS}
        return cls(os.getcwd(), tuple(options.modules), environment, levels, threads)

    def enter(self) -> None:
        """Sets up this process; must be called before TensorFlow is imported."""
        os.chdir(self.directory)
        for name, value in self.environment.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
        # TensorFlow sets its own level when it is imported, and absl its own.
        logging.root.handlers[:] = []
        for name, level in self.levels.items():
            logging.getLogger(name).setLevel(level)
        missing = [name for name in self.names if name not in sys.modules]
        modules.search_working_directory(missing)
        for name in missing:
            importlib.import_module(name)


class Checked(NamedTuple):
    """What the settings of a run were found to be.

    Attributes:
        refusal: why they are refused, if they are.
        warnings: what the user should know about them.
    """

    refusal: SettingError | None
    warnings: Sequence[str]


def check_on_ray(surroundings: Surroundings, configs: bytes) -> Failure | list[Checked]:
    """Checks settings of runs as a Ray task, and so imports TensorFlow before the first run.

    Args:
        surroundings: what to set up first.
        configs: a pickled sequence of `ExperimentConfig`.

    Returns:
        What was found about each run; or why they cannot be checked.
    """
    try:
        surroundings.enter()
        # Safe: the bytes come from the process of the study, and Ray itself unpickles what it says.
        checked: Sequence[ExperimentConfig] = pickle.loads(configs)
        heavy.own_process()
        heavy.load(*_IMPORTED_FIRST)
        return [_checked(config) for config in checked]
    except Exception as error:
        return Failure.of(error)


def _checked(config: ExperimentConfig) -> Checked:
    """Checks the settings of a run."""
    warnings: list[str] = []
    refusal = None
    try:
        planning.check(config, warnings.append)
    except SettingError as error:
        refusal = error
    return Checked(refusal, warnings)


def compute_on_ray(
    surroundings: Surroundings, number: int, job: bytes, queue: Any
) -> Mapping[str, Any] | Failure:
    """Runs `compute` as a Ray task.

    Args:
        surroundings, number, job: as for `compute`.
        queue: the actor of a `ray.util.queue.Queue`, which gets the news.
    """
    import ray

    send = queue.put_nowait.remote
    outcome = compute(surroundings, number, job, send)
    # All news have arrived before the outcome does.
    with contextlib.suppress(ray.exceptions.RayError):
        ray.get(send(News(number, "end")))
    return outcome


def compute(
    surroundings: Surroundings, number: int, job: bytes, send: Callable[[News], None]
) -> Mapping[str, Any] | Failure:
    """Computes a run in this process.

    Args:
        surroundings: what to set up first.
        number: the number of the run, for the news.
        job: a pickled `Job`, which may contain objects of the user's modules.
        send: called with news about the run.

    Returns:
        The summary, or why the run failed.
    """
    try:
        surroundings.enter()
        # Safe for the same reason as above.
        config, folder, options, overwrite, label, cores, limits = pickle.loads(job)
        _stay_on(cores)
        # The runs of a study mostly train on the same data.
        cache.keep()
        with run_reports.reported(number, send):
            return run_experiment(
                config,
                folder,
                _options_here(options, len(cores) or surroundings.threads),
                overwrite=overwrite,
                label=label,
                callbacks=[run_reports.Report(number, send)],
                **(limits or {}),
            )
    except Exception as error:
        return Failure.of(error)


def _stay_on(cores: frozenset[int]) -> None:
    """Binds all threads of this process to some cores, if there are any."""
    if not cores:
        return
    # Threads that start later inherit the cores of the threads that start them.
    for thread in os.listdir("/proc/self/task"):
        with contextlib.suppress(ProcessLookupError):
            os.sched_setaffinity(int(thread), cores)


def _options_here(options: RunOptions, threads: int) -> RunOptions:
    """The options of a run in a process that shares the machine with others."""
    runtime: Any = options.compute.runtime
    # Results do not depend on how many clients are computed at the same time.
    if getattr(runtime, "client_parallelism", 0) is None:
        runtime = dataclasses.replace(runtime, client_parallelism=threads)
    compute = dataclasses.replace(options.compute, runtime=runtime)
    return dataclasses.replace(options, compute=compute, progress=False)
