"""Section `population`: whether rounds take longer in larger federations."""

from __future__ import annotations

import contextlib
import statistics
import time
from typing import Any

from benchmarks import measure
from benchmarks.report import Section, Table, Target
from benchmarks.workloads import synthetic
from tff_pcdd.training import ExperimentConfig, Simulation, TrainingConfig

_TEXT = """\
`Simulation.next_round` of FedAvg on the runtime `inprocess`, with a cohort of 10 from federations
of different sizes. This includes choosing the cohort with its data and states, the round itself,
and storing the states. Each client has {samples} images of 8×8 and trains for five local epochs.
Seconds are medians of {repeats} measurements of {rounds} rounds; the federations take turns. The
ratio is that to the smallest federation."""

_POPULATIONS, _QUICK_POPULATIONS = (100, 1_000, 10_000), (20, 40)
_SAMPLES, _ROUNDS = 64, 10
_COHORT = 10
_LIMIT = 1.2


def run(plan: measure.Plan) -> Section:
    """Builds the federations and measures their rounds."""
    populations = _QUICK_POPULATIONS if plan.quick else _POPULATIONS
    samples, rounds = (4, 1) if plan.quick else (_SAMPLES, _ROUNDS)
    contenders, build_seconds = {}, {}
    with contextlib.ExitStack() as stack:
        for clients in populations:
            measure.note(f"population: {clients} clients")
            start = time.perf_counter()
            simulation = stack.enter_context(_build(clients, samples))
            build_seconds[clients] = time.perf_counter() - start
            contenders[str(clients)] = _rounds(simulation, rounds)
        seconds = measure.alternate(contenders, plan.repeats, "population")
    smallest = seconds[str(populations[0])]
    rows: list[dict[str, Any]] = [
        {
            "clients": clients,
            "seconds": [s / rounds for s in seconds[str(clients)]],
            "median": statistics.median(seconds[str(clients)]) / rounds,
            "ratio": measure.paired_ratio(seconds[str(clients)], smallest),
            "build_seconds": build_seconds[clients],
        }
        for clients in populations
    ]
    target = Target(
        f"round time with {populations[-1]:,} clients over {populations[0]:,}",
        rows[-1]["ratio"],
        _LIMIT,
    )
    columns = {
        "clients": "clients",
        "seconds a round": "median",
        "ratio": "ratio",
        "building the simulation (s)": "build_seconds",
    }
    text = _TEXT.format(samples=samples, rounds=rounds, repeats=plan.repeats)
    picture = (
        "seconds a round by the number of clients, cohort of 10",
        {f"{row['clients']:,}": row["median"] for row in rows},
        None,
    )
    return Section("Population", text, [Table("Population", columns, rows)], [target], picture)


def _build(clients: int, samples: int) -> Simulation:
    config = ExperimentConfig(
        data=synthetic(clients * samples, clients, (8, 8, 1)),
        training=TrainingConfig(clients_per_round=_COHORT),
    )
    return Simulation(config)


def _rounds(simulation: Simulation, rounds: int):
    def call():
        for _ in range(rounds):
            simulation.next_round()

    return call
