"""Values that are NaN or infinite: clients that send them, and runs that do not recover.

A client that is excluded must change nothing: the server's state has to be that of a round in which
a client without samples takes its place, bit for bit, under every method and aggregator. A run that
does not recover must be marked in everything that it writes, and is not exported.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import itertools
import json
import math
from collections import OrderedDict
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import numpy as np
import tensorflow as tf

from tests import support
from tests.faults.case import MARKED, REFUSED, Case, SilentDifference, one_line
from tests.support import federation
from tests.training.runs import SharedRuntime
from tff_pcdd import data, export, methods, runtime
from tff_pcdd.errors import DataError
from tff_pcdd.experiment import simulation
from tff_pcdd.experiment.nonfinite import PATIENCE
from tff_pcdd.federated import aggregators, build_process
from tff_pcdd.federated.tensor_computations import build_tensor_computations
from tff_pcdd.studies import comparison_tables
from tff_pcdd.studies.study import StudyRun
from tff_pcdd.training import ComputeOptions, ExperimentConfig, RunOptions, run_experiment

# What a pixel becomes. 1e308 is infinite in float32.
with np.errstate(over="ignore"):
    PIXELS = {
        "NaN": np.float32("nan"),
        "1e308": np.float32(1e308),
        "-1e308": np.float32(-1e308),
    }
# The cohort, and which of its clients are bad. The last client of the federation has no samples.
COHORT, EMPTY = (0, 1, 2), 4
BAD = {"one": {1}, "two": {0, 1}, "all": {0, 1, 2}}
# Methods that are combined with every aggregator. For the others, the mean has to suffice: tracing
# takes seconds, and aggregators add up the same tensors for all methods.
WITH_EVERY_AGGREGATOR = ("fedavg", "fedgela", "fedloge", "fedper")

# The kinds of cases.
CLIENT, RUN = "client that sends NaN or infinities", "run that does not recover"


def cases(directory: Path) -> Iterator[Case]:
    """All cases."""
    del directory
    for method in methods.names():
        for aggregator in aggregators.names():
            if aggregator != "mean" and method not in WITH_EVERY_AGGREGATOR:
                continue
            for pixel, bad in itertools.product(PIXELS, BAD):
                check = functools.partial(_client, method, aggregator, pixel, bad)
                yield Case(CLIENT, f"{method}, {aggregator}, {pixel} pixel, {bad}", check)
    for fault, action, aggregator in itertools.product(
        FAULTS, ("stop", "exclude"), aggregators.names()
    ):
        check = functools.partial(_run, "fedavg", aggregator, action, fault)
        yield Case(RUN, f"fedavg, {aggregator}, {action}, {fault}", check)
    for fault, method in itertools.product(FAULTS, ("fedproto", "fedper", "feddyn")):
        check = functools.partial(_run, method, "mean", "stop", fault)
        yield Case(RUN, f"{method}, mean, stop, {fault}", check)


# A client that sends NaN or infinities.


def _spec(method: str, private: bool):
    # The statistics of batch normalization would not be private.
    return support.training_spec(method, statistics=not private)


@functools.lru_cache(maxsize=4)
def _tensors(method: str, private: bool):
    return build_tensor_computations(_spec(method, private))


@functools.lru_cache(maxsize=4)
def _process(method: str, aggregator: str):
    """The computations, the initial state, and the states after a round without the bad clients."""
    private = aggregator == "dp"
    # Two rounds can only be compared without noise.
    made = aggregators.create(aggregator, **({"noise_multiplier": 0.0} if private else {}))
    spec = _spec(method, private)
    process = build_process(spec, made, tensors=_tensors(method, private))
    start = process.initialize()
    wanted = {
        number: _round(process, start, [EMPTY if client in bad else client for client in COHORT])[0]
        for number, bad in BAD.items()
    }
    return process, start, wanted


@functools.cache
def _context():
    return runtime.create("inprocess").create_context()


def _client(method: str, aggregator: str, pixel: str, number: str, directory: Path) -> str:
    del directory
    with runtime.installed(_context()):
        process, start, wanted = _process(method, aggregator)
        bad = BAD[number]
        got, states, metrics = _round(process, start, COHORT, bad, PIXELS[pixel])
        if float(metrics["included"]) != len(COHORT) - len(bad):
            raise SilentDifference(f"{metrics['included']} clients are included")
        _assert_equal(got, wanted[number])
        for client in bad:
            initial = process.initial_client_state(support.seed_of(0, client))
            _assert_equal(states[client], initial)
        if number == "all":
            _assert_equal(got.weights, start.weights)
    return MARKED


def _round(process, state, cohort, bad=(), pixel=None):
    """The server's state and the clients' states after a round, and its metrics."""
    states = [process.initial_client_state(support.seed_of(0, client)) for client in cohort]
    clients = [
        support.client_data(client, 0, cohort_index=index) for index, client in enumerate(cohort)
    ]
    clients = [
        data._replace(train=OrderedDict(data.train, x=_spoiled(data.train["x"], pixel)))
        if client in bad
        else data
        for client, data in zip(cohort, clients, strict=True)
    ]
    state, states, metrics = process.next(state, states, clients)
    return state, dict(zip(cohort, states, strict=True)), metrics


def _spoiled(x: np.ndarray, pixel: np.float32) -> np.ndarray:
    """The images, with another value in one pixel."""
    x = np.array(x)
    x[0, 1, 2, 0] = pixel
    return x


def _assert_equal(a, b) -> None:
    for left, right in zip(tf.nest.flatten(a), tf.nest.flatten(b), strict=True):
        if not np.array_equal(np.asarray(left), np.asarray(right)):
            raise SilentDifference("the states differ")


# A run that does not recover.


@dataclasses.dataclass(frozen=True)
class Fault:
    """What is wrong with a run.

    Attributes:
        pixel: the value of a pixel of the training samples of `clients`, or of the test samples.
        clients: the bad clients.
        test: whether it is a pixel of the test samples.
        learning_rate: that of the clients.
        recovers: whether the rest of the clients can be trained without the bad ones.
        may_recover: whether this depends on the aggregator: one that clips keeps the model usable
            with the updates of those clients that stay finite.
    """

    pixel: float | None = None
    clients: tuple[int, ...] = ()
    test: bool = False
    learning_rate: float = 0.05
    recovers: bool = False
    may_recover: bool = False


FAULTS = {
    "learning rate 1000": Fault(learning_rate=1000.0, may_recover=True),
    "learning rate 1e30": Fault(learning_rate=1e30),
    "one NaN pixel": Fault(PIXELS["NaN"], (1,), recovers=True),
    "one 1e308 pixel": Fault(PIXELS["1e308"], (1,), recovers=True),
    "one NaN pixel at every client": Fault(PIXELS["NaN"], (0, 1, 2, 3)),
    "NaN in a test image": Fault(PIXELS["NaN"], test=True),
}


def _federation(fault: Fault) -> data.Federation:
    made = federation()
    train, test = np.array(made.train.x), np.array(made.test.x)
    for client in fault.clients:
        train[made.clients[client].train[0], 1, 2, 0] = fault.pixel
    if fault.test:
        test[0, 1, 2, 0] = fault.pixel
    return dataclasses.replace(
        made,
        train=data.Examples(train, made.train.y),
        test=data.Examples(test, made.test.y),
    )


_built: dict = {}


def _build(spec, aggregator):
    """Traces the computations of a method and learning rate once."""
    key = spec.method.name, spec.optimizer.learning_rate
    if key not in _built:
        _built[key] = build_tensor_computations(spec)
    if (*key, aggregator.name) not in _built:
        made = build_process(spec, aggregator, tensors=_built[key])
        _built[*key, aggregator.name] = made
    return _built[*key, aggregator.name]


def _run(method: str, aggregator: str, action: str, name: str, directory: Path) -> str:
    fault = FAULTS[name]
    try:
        faulty = _federation(fault)
    except DataError as error:
        return one_line(error)
    config = ExperimentConfig.from_settings(
        algorithm=method,
        aggregator=aggregator,
        nonfinite=action,
        model="mlp",
        num_clients=5,
        rounds=2 * PATIENCE,
        local_epochs=2,
        batch_size=4,
        client_learning_rate=fault.learning_rate,
        client_clip_norm=0.0,
    )
    compute = ComputeOptions(runtime=SharedRuntime(_context()))
    options = RunOptions(compute=compute, progress=False, tensorboard=False)
    with _patched_build():
        summary = run_experiment(config, directory / "run", options, federation=faulty)
        again = run_experiment(config, directory / "run", options, federation=faulty)
        if again != summary:
            raise SilentDifference("the same command gives another summary")
        return _judge(config, directory, options, faulty, summary, fault)


def _judge(config, directory, options, faulty, summary, fault) -> str:
    """Whether a run is marked everywhere."""
    written = json.loads((directory / "run" / "summary.json").read_text())
    if written != json.loads(json.dumps(summary)):
        raise SilentDifference("summary.json differs")
    if not summary["nonfinite_rounds"]:
        raise SilentDifference(f"nothing was noticed: {summary}")
    header, *lines = (directory / "run" / "metrics.csv").read_text().splitlines()
    column = header.split(",").index("nonfinite_rounds")
    if not any(int(line.split(",")[column]) for line in lines[:PATIENCE]):
        raise SilentDifference("not noticed within three rounds")
    if fault.recovers and config.training.nonfinite == "exclude":
        # The others go on without the bad client.
        if summary["diverged"] or summary["rounds"] < config.training.rounds:
            raise SilentDifference("the run did not go on")
        if summary["excluded_clients"] != summary["rounds"] or not math.isfinite(
            summary["ga_final"]
        ):
            raise SilentDifference(f"{summary['excluded_clients']} clients were excluded")
        return _mentioned(config, directory / "run", summary)
    if not summary["diverged"]:
        if fault.may_recover and config.training.nonfinite == "exclude":
            return _mentioned(config, directory / "run", summary)
        raise SilentDifference(f"not marked: {summary}")
    if summary["ga_best"] is not None:
        raise SilentDifference("a diverged run has a best round")
    clients = "none" if config.method.has_global_model else "all"
    chosen = export.ExportOptions(clients=clients)
    try:
        export.export_run(
            directory / "run",
            directory / "out",
            chosen,
            options,
            config=config,
            federation=faulty,
        )
    except DataError as error:
        assert one_line(error, "diverged") == REFUSED
        return MARKED
    raise SilentDifference("a diverged model was exported")


def _mentioned(config, folder: Path, summary) -> str:
    """Whether the tables say of a usable run that clients were excluded."""
    text = comparison_tables.document([StudyRun(config, folder, "this run", summary)])
    if f"this run ({summary['excluded_clients']} times)" not in text:
        raise SilentDifference(f"the tables do not mention excluded clients: {text}")
    return MARKED


@contextlib.contextmanager
def _patched_build():
    with mock.patch.object(simulation.federated, "build_process", _build):
        yield
