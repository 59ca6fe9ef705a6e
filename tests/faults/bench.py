"""A run that takes a tenth of a second, and what came out of it after a fault."""

from __future__ import annotations

import contextlib
import csv
import dataclasses
import functools
import io
import json
import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

from tests import support
from tests.faults.case import REPAIRED, SAME, SilentDifference
from tests.training.runs import SharedRuntime, sharing_computations
from tff_pcdd import data, files, runtime
from tff_pcdd.training import (
    Callback,
    ComputeOptions,
    ExperimentConfig,
    RunOptions,
    run_experiment,
)
from tff_pcdd.training.callbacks import Pictures
from tff_pcdd.training.file_names import answer_files


def with_settings(**values) -> ExperimentConfig:
    """A method whose server and clients keep a state, with these settings."""
    common = {
        "algorithm": "feddyn",
        "model": "mlp",
        "num_clients": 5,
        "clients_per_round": 3,
        "local_epochs": 1,
        "batch_size": 4,
        "client_learning_rate": 0.05,
    }
    return ExperimentConfig.from_settings(**common, **values)


CONFIG = with_settings(rounds=4)
STORES = ("memory", "disk")
_TIMES = ("seconds", "seconds_per_round")
_BUILT: dict = {}
_FSYNC = os.fsync


@functools.cache
def options(store: str = "memory") -> RunOptions:
    """Writes what results need, and keeps two checkpoints."""
    shared = SharedRuntime(runtime.create("inprocess").create_context())
    return RunOptions(
        compute=ComputeOptions(runtime=shared),
        keep_checkpoints=2,
        client_store=store,
        progress=False,
        tensorboard=False,
    )


@functools.cache
def federation() -> data.Federation:
    """The clients of the matrix of combinations."""
    return support.federation()


@contextlib.contextmanager
def cheap() -> Iterator[None]:
    """Runs trace their computations once, and draw a picture of one line."""

    def on_end(_, run):
        if run.finished:
            files.make_directory(run.directory / "plots")
            files.write_text(run.directory / "plots" / "accuracy.png", "picture")

    with contextlib.ExitStack() as stack:
        stack.enter_context(sharing_computations(_BUILT))
        stack.enter_context(mock.patch.object(Pictures, "on_end", on_end))
        if os.fsync is _FSYNC:
            # Not replaced by what records it.
            stack.enter_context(mock.patch.object(os, "fsync", lambda _: None))
        yield


def train(
    directory: Path,
    store: str = "memory",
    *,
    config: ExperimentConfig = CONFIG,
    overwrite: bool = False,
    callbacks: Sequence[Callback] = (),
    clients: data.Federation | None = None,
    tensorboard: bool = False,
) -> dict:
    """Runs or resumes the experiment, and returns its summary."""
    with cheap():
        return run_experiment(
            config,
            directory,
            dataclasses.replace(options(store), tensorboard=tensorboard),
            overwrite=overwrite,
            federation=clients or federation(),
            callbacks=callbacks,
        )


class _Messages(logging.Handler):
    """Keeps warnings, except those about the data."""

    def __init__(self):
        super().__init__(logging.WARNING)
        self.texts: list[str] = []

    def emit(self, record):
        text = record.getMessage()
        if record.name != "tensorflow" and "no training samples" not in text:
            self.texts.append(text)


@contextlib.contextmanager
def warnings() -> Iterator[list[str]]:
    """The warnings of the block."""
    handler = _Messages()
    logger = logging.getLogger()
    logger.addHandler(handler)
    try:
        yield handler.texts
    finally:
        logger.removeHandler(handler)


def without_times(values: Mapping[str, Any]) -> dict[str, Any]:
    """A row, or a summary, without what differs from run to run."""
    return {name: value for name, value in values.items() if name not in _TIMES}


def written(value: float | None) -> str:
    """A measurement as it is in metrics.csv."""
    return "" if value is None else f"{value:.9g}" if isinstance(value, float) else str(value)


@dataclasses.dataclass(frozen=True)
class Results:
    """What a run leaves, without times.

    Attributes:
        rows: the rows of metrics.csv.
        summary: summary.json.
        states: checksums of the states in the newest checkpoint.
        answers: the files about what the models answer, by name.
        seconds: the measured time of each round, by its number.
    """

    rows: list[dict[str, str]]
    summary: dict
    states: dict
    answers: dict[str, bytes]
    seconds: dict[int, str] = dataclasses.field(compare=False)


def results(directory: Path, *, states: bool = True) -> Results:
    """The results of a finished run; no temporary file may be left."""
    leftover = [path.name for path in directory.rglob("*.tmp")]
    assert not leftover, leftover
    text = (directory / "metrics.csv").read_bytes().decode()
    rows = list(csv.DictReader(io.StringIO(text)))
    summary = json.loads((directory / "summary.json").read_text())
    manifest = {}
    if states:
        newest = max((directory / "checkpoints").glob("*.json"))
        manifest = json.loads(newest.read_text())["content"]
    kept = ("round", "arrays", "clients")
    return Results(
        [without_times(row) for row in rows],
        without_times(summary),
        {name: manifest[name] for name in kept if states},
        {name: (directory / name).read_bytes() for name in answer_files(predictions=False)},
        {int(row["round"]): row["seconds"] for row in rows},
    )


def reference(directory: Path, store: str = "memory") -> Results:
    """The results of a run without a fault."""
    train(directory, store)
    return results(directory)


def compare(directory: Path, expected: Results, messages: Sequence[str], *, states=True) -> str:
    """Compares a run's files and, unless `states` is false, its last state with the expected."""
    found = results(directory, states=states)
    if not states:
        expected = dataclasses.replace(expected, states={})
    if found != expected:
        raise SilentDifference(f"{found}\ninstead of\n{expected}\nafter {messages}")
    return REPAIRED if messages else SAME
