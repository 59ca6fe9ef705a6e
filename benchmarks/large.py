"""Section `large`: as many clients as FEMNIST has writers, and many more.

`python -m benchmarks.large CLIENTS COHORT SAMPLES` builds a federation, says in JSON how
long that took, and computes a round for each line that it reads, whose seconds it prints.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks import measure, processes
from benchmarks.report import Section, Table, Target
from benchmarks.workloads import synthetic
from tff_pcdd import data

_TEXT = """\
FedPer with an MLP and a cohort of {cohort} on the runtime `inprocess`, client states on disk and a
checkpoint after every round. Each client has {samples} images of 28×28 and keeps its head. Each
federation has a process of its own; they take turns. Seconds of a round include choosing the cohort
with its data and states, storing the states, and the checkpoint; they are medians of {repeats}
measurements of {rounds} rounds, and the ratio is that to the federation of the second row. *start*:
making the samples, dividing them, statistics, digest and computations, without the import of
TensorFlow. Memory is the peak of the process.

Partitions: seconds to divide images of 1×1 pixel among the clients, {samples} for each, and to make
the statistics and the files of `tasks.partition`, in the process of the benchmark, measured once.
The ratio is that of the sum of the three to the sum with fewer clients."""

_POPULATIONS, _QUICK_POPULATIONS = (350, 3_500, 35_000), (20, 40)
_COHORT, _QUICK_COHORT = 100, 4
_SAMPLES, _ROUNDS = 20, 5
_PIXELS = 28 * 28
_DIVIDED, _QUICK_DIVIDED = (10_000, 100_000), (20, 40)
_SCHEMES: dict[str, dict[str, Any]] = {
    "class": {"classes_per_client": 2},
    "dirichlet": {"min_samples": 0},
    "dirichlet, overlapping tests": {"min_samples": 0, "local_test": "overlapping"},
    "iid": {},
    "iid, long tail": {},
    "iid, 10 % held out": {},
    "natural": {},
}
_TIME_LIMIT, _MEMORY_LIMIT, _LINEAR = 1.2, 2.0, 12


def run(plan: measure.Plan) -> Section:
    """Measures rounds and start-up in processes, and partitions in this one."""
    populations = _QUICK_POPULATIONS if plan.quick else _POPULATIONS
    cohort = _QUICK_COHORT if plan.quick else _COHORT
    rounds, samples = (1, 4) if plan.quick else (_ROUNDS, _SAMPLES)
    rows = _measure_rounds(plan, populations, cohort, samples, rounds)
    middle, largest = rows[-2:]
    further = largest["clients"] - middle["clients"]
    growth = 1e6 * (largest["memory_mb"] - middle["memory_mb"]) / further
    divided = _measure_partitions(_QUICK_DIVIDED if plan.quick else _DIVIDED, _SAMPLES)
    names = [f"{row['clients']:,} clients over {middle['clients']:,}" for row in rows]
    times = largest["clients"] / middle["clients"]
    targets = [
        Target(f"large: round time with {names[-1]}", largest["ratio"], _TIME_LIMIT),
        Target(
            "large: memory of a further client over the bytes of its samples",
            growth / (samples * _PIXELS),
            _MEMORY_LIMIT,
        ),
        Target(
            f"large: start with {names[-1]}",
            largest["start_seconds"] / middle["start_seconds"],
            times,
        ),
        Target(
            "large: partition and statistics with ten times as many clients, slowest scheme",
            max(row["ratio"] for row in divided),
            _LINEAR,
        ),
    ]
    columns = {
        "clients": "clients",
        "start (s)": "start_seconds",
        "seconds a round": "median",
        "ratio": "ratio",
        "memory (MB)": "memory_mb",
    }
    of_schemes = {
        "partition": "scheme",
        "clients": "clients",
        "partition (s)": "seconds",
        "statistics (s)": "statistics_seconds",
        "files (s)": "files_seconds",
        "ratio": "ratio",
    }
    text = _TEXT.format(cohort=cohort, samples=samples, repeats=plan.repeats, rounds=rounds)
    tables = [
        Table("Rounds of large federations", columns, rows),
        Table("Partitions of large federations", of_schemes, divided),
    ]
    return Section("Large federations", text, tables, targets)


def _measure_rounds(
    plan: measure.Plan, populations: tuple[int, ...], cohort: int, samples: int, rounds: int
) -> list[dict[str, Any]]:
    """A row for each number of clients."""
    rows: list[dict[str, Any]] = []
    with contextlib.ExitStack() as stack:
        contenders: dict[str, Callable[[], object]] = {}
        workers = []
        for clients in populations:
            measure.note(f"large: start with {clients} clients")
            worker = stack.enter_context(_Worker(clients, cohort, samples))
            workers.append(worker)
            rows.append({"clients": clients, "start_seconds": worker.start_seconds})
            contenders[str(clients)] = worker.rounds(rounds)
        seconds = measure.alternate(contenders, plan.repeats, "large")
        for row, worker in zip(rows, workers, strict=True):
            own = seconds[str(row["clients"])]
            row["seconds"] = [value / rounds for value in own]
            row["median"] = statistics.median(row["seconds"])
            row["ratio"] = measure.paired_ratio(own, seconds[str(populations[-2])])
            row["memory_mb"] = processes.peak_memory(worker.pid)
    return rows


class _Worker:
    """A process with a federation, which computes rounds on request."""

    def __init__(self, clients: int, cohort: int, samples: int):
        self._process = processes.start_module(
            "benchmarks.large",
            *map(str, (clients, cohort, samples)),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self.start_seconds: float = self._answer()

    @property
    def pid(self) -> int:
        return self._process.pid

    def rounds(self, number: int) -> Callable[[], object]:
        """A call that computes some rounds."""

        def call():
            assert self._process.stdin is not None
            for _ in range(number):
                self._process.stdin.write("round\n")
                self._process.stdin.flush()
                self._answer()

        return call

    def _answer(self) -> float:
        line = processes.standard_output(self._process).readline()
        if not line:
            raise RuntimeError(f"a process of section large exited with {self._process.wait()}")
        return json.loads(line)

    def __enter__(self) -> _Worker:
        return self

    def __exit__(self, *exc_info: object) -> None:
        # At the end of its input, the process ends.
        self._process.communicate()


def _measure_partitions(populations: tuple[int, ...], samples: int) -> list[dict[str, Any]]:
    """A row for each scheme and number of clients."""
    from tff_pcdd.data.digest import data_digest
    from tff_pcdd.report import partition

    rows: list[dict[str, Any]] = []
    for scheme, settings in _SCHEMES.items():
        for clients in populations:
            measure.note(f"large: {scheme}, {clients} clients")
            config = _divided(scheme, settings, clients, samples)
            times = [time.perf_counter()]
            federation = config.build()
            times.append(time.perf_counter())
            federation.summary()
            data_digest(federation)
            times.append(time.perf_counter())
            with tempfile.TemporaryDirectory() as folder:
                partition.write(config, federation, Path(folder))
            times.append(time.perf_counter())
            own, stats, written = (b - a for a, b in itertools.pairwise(times))
            first = rows[-1] if clients != populations[0] else None
            whole = times[-1] - times[0]
            rows.append(
                {
                    "scheme": scheme,
                    "clients": clients,
                    "seconds": own,
                    "statistics_seconds": stats,
                    "files_seconds": written,
                    "whole_seconds": whole,
                    "ratio": whole / first["whole_seconds"] if first else 1.0,
                }
            )
    return rows


def _divided(scheme: str, settings: dict[str, Any], clients: int, samples: int) -> data.DataConfig:
    name = scheme.partition(",")[0]
    # A long tail leaves about a third of the samples.
    factor = 4 if "tail" in scheme else 1
    config = synthetic(factor * clients * samples, clients, (1, 1, 1))
    if name == "natural":
        return data.DataConfig(_with_users(config.source, clients), data.partitions.create(name))
    return data.DataConfig(
        config.source,
        data.partitions.create(name, num_clients=clients, **settings),
        imbalance_factor=10.0 if "tail" in scheme else None,
        validation_fraction=0.1 if "held out" in scheme else 0.0,
    )


def _with_users(source: data.DataSource, users: int) -> data.DataSource:
    """The same data set, divided evenly among users."""

    class Users(type(source)):  # type: ignore[misc]
        info = dataclasses.replace(source.info, has_users=True)

        def load(self, request):
            pooled = super().load(request)
            split = data.split_iid(pooled.train.y, pooled.test.y, users, 0)
            parts = zip(range(users), split.train, split.test, strict=True)
            found = tuple(data.ClientIndices(f"user {user}", *own) for user, *own in parts)
            return dataclasses.replace(pooled, users=found)

    return Users()


def serve(clients: int, cohort: int, samples: int) -> None:
    """Builds a federation, and computes a round for each line of standard input."""
    from tff_pcdd import methods, models
    from tff_pcdd.data.digest import data_digest
    from tff_pcdd.training import ExperimentConfig, Simulation, TrainingConfig
    from tff_pcdd.training.checkpoints import Checkpoint, CheckpointManager
    from tff_pcdd.training.disk_store import DiskStore

    start = time.perf_counter()
    config = ExperimentConfig(
        method=methods.create("fedper"),
        data=synthetic(clients * samples, clients, (28, 28, 1)),
        model=models.ModelConfig(models.create("mlp")),
        training=TrainingConfig(clients_per_round=cohort, local_epochs=1, batch_size=samples),
    )
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        federation = config.data.build()
        federation.summary()
        manager = CheckpointManager(folder / "ck", 3, {"data": data_digest(federation)})
        simulation = Simulation(
            config, federation, store=lambda initial: DiskStore(initial, folder / "states")
        )
        with simulation:
            print(json.dumps(time.perf_counter() - start), flush=True)
            for _ in sys.stdin:
                start = time.perf_counter()
                simulation.next_round()
                checkpoint = Checkpoint(simulation.round, simulation.state, simulation.totals)
                manager.save(checkpoint, simulation.store)
                print(json.dumps(time.perf_counter() - start), flush=True)


if __name__ == "__main__":
    serve(*map(int, sys.argv[1:]))
