"""A process that computes runs of a study, one after the other; `parallel_runs` starts it.

It receives requests from the process of the study through a connection, and sends back pairs of a
kind and a value:

- "stage": what it does, or an empty text when that ends;
- "begin" and "round": the number of rounds so far of a run, its last round, and a text;
- "log": the logger, the level and the text of a message;
- "end": what the request has returned, such as the summary of a run, or a `Failure`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import logging
import os
import pickle
import signal
import sys
import threading
from collections.abc import Mapping, Sequence
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

from tff_pcdd import heavy, modules, outputs, stages
from tff_pcdd.data import cache
from tff_pcdd.experiment import planning
from tff_pcdd.runtime import launcher
from tff_pcdd.runtime.config import MAX_DEFAULT_PARALLELISM
from tff_pcdd.studies import own_methods
from tff_pcdd.studies.study import Failure, StudyRun
from tff_pcdd.training import ExperimentConfig, RunOptions, callbacks, run_experiment

# Loggers that get the same levels as in the process of the study.
_LOGGERS = ("", "absl", "tensorflow", "tff_pcdd")
# What a run imports; that takes seconds.
_IMPORTED_FIRST = ("tensorflow", "tensorflow_federated", "tff_pcdd.training.run")


class Setup(NamedTuple):
    """What a process needs in order to compute runs as the process of the study would.

    Attributes:
        study: the id of the process of the study.
        modules: the user's modules to import.
        levels: the levels of loggers, by name.
        cores: the CPU cores of the process; if empty, it may use all.
    """

    study: int
    modules: Sequence[str]
    levels: Mapping[str, int]
    cores: frozenset[int]

    @classmethod
    def of(cls, modules: Sequence[str], cores: frozenset[int]) -> Setup:
        """What a process needs in order to compute runs as this process would."""
        levels = {name: logging.getLogger(name).level for name in _LOGGERS}
        return cls(os.getpid(), modules, levels, cores)


class Sender(logging.Handler):
    """Sends news to the process of the study, log messages among them, from any thread."""

    def __init__(self, connection: Connection):
        super().__init__()
        self._connection = connection
        self._sends = threading.Lock()

    def send(self, kind: str, value: Any) -> None:
        with self._sends:
            self._connection.send((kind, value))

    def emit(self, record: logging.LogRecord) -> None:
        try:
            # The arguments may be objects whose classes the other process does not have.
            text = record.getMessage()
            if record.exc_info:
                text = f"{text}\n{logging.Formatter().formatException(record.exc_info)}"
            self.send("log", (record.name, record.levelno, text))
        except Exception:
            self.handleError(record)


class Report(callbacks.Callback):
    """Reports the rounds of a run."""

    def __init__(self, sender: Sender):
        self._sender = sender
        self._text = ""

    def on_start(self, run):
        stages.leave()
        self._text = callbacks.first_text(run) or ""
        self._send("begin", run)

    def on_round(self, run, row):
        self._text = callbacks.text(run)
        self._send("round", run)

    def _send(self, kind: str, run: Any) -> None:
        self._sender.send(kind, (run.simulation.round, run.last_round, self._text))


def main(connection: Connection) -> None:
    """Answers requests until the process of the study ends.

    Args:
        connection: receives a `Setup`, and then pickled pairs of a function of this module and its
            arguments after the first, which is a `Sender`.
    """
    # No process that this one starts keeps the connection open.
    os.set_inheritable(connection.fileno(), False)
    # What its runs print is not what they compute.
    outputs.install(prints_results=False)
    setup: Setup = connection.recv()
    launcher.end_with_parent(setup.study, signal.SIGKILL)
    heavy.own_process()
    sender = Sender(connection)
    logging.root.handlers[:] = [sender]
    # The runs of a study mostly train on the same data.
    cache.keep()
    with stages.passed_on(lambda stage: sender.send("stage", stage)):
        while True:
            try:
                request = connection.recv_bytes()
            except EOFError:
                return
            try:
                _enter(setup)
                # Safe: the bytes come from the process that has started this one.
                function, *arguments = pickle.loads(request)
                outcome = function(sender, *arguments)
            except Exception as error:
                outcome = Failure.of(error)
            # The process of the study may end this one at any time from now on.
            sys.stdout.flush()
            sender.send("end", outcome)


def _enter(setup: Setup) -> None:
    """Imports what runs need, then binds the process to its cores; only once."""
    missing = [name for name in setup.modules if name not in sys.modules]
    modules.search_working_directory(missing)
    for name in missing:
        importlib.import_module(name)
    heavy.load(*_IMPORTED_FIRST)
    # TensorFlow has set its own level, and absl its own.
    for name, level in setup.levels.items():
        logging.getLogger(name).setLevel(level)
    if setup.cores and os.sched_getaffinity(0) != setup.cores:
        # Threads that start later inherit the cores of the threads that start them.
        for thread in os.listdir("/proc/self/task"):
            with contextlib.suppress(ProcessLookupError):
                os.sched_setaffinity(int(thread), setup.cores)


def check(sender: Sender, configs: Sequence[ExperimentConfig], options: RunOptions) -> None:
    """Checks the settings and methods of runs; warnings are log messages."""
    planning.check_all(configs)
    own_methods.check(configs, options.compute)


def compute(
    sender: Sender, run: StudyRun, options: RunOptions, overwrite: bool, label: str, clients: int
) -> Mapping[str, Any]:
    """Computes a run, and returns its summary; `clients` train at the same time by default."""
    runtime: Any = options.compute.runtime
    # Results do not depend on how many clients train at the same time.
    if getattr(runtime, "client_parallelism", 0) is None and not runtime.uses_gpus():
        runtime = dataclasses.replace(
            runtime, client_parallelism=min(clients, MAX_DEFAULT_PARALLELISM)
        )
    where = dataclasses.replace(options.compute, runtime=runtime)
    return run_experiment(
        run.config,
        run.folder,
        dataclasses.replace(options, compute=where, progress=False),
        overwrite=overwrite,
        label=label,
        callbacks=[Report(sender)],
        report=False,
        **run.limits,
    )
