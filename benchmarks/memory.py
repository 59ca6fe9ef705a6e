"""Section `memory`: whether memory grows over the rounds if the cohort size varies.

`python -m benchmarks.memory ROUNDS` runs the rounds, and waits after each of them.
"""

from __future__ import annotations

import gc
import sys

import numpy as np

from benchmarks import measure, processes
from benchmarks.report import Section, Table, Target

_TEXT = """\
{rounds} rounds of FedAvg on the runtime `inprocess` in a process of its own, with cohorts of 2 to
12 of 12 clients, which have 16 images of 8×8 each. The table shows the resident memory of the
process after a round, read from outside (/proc/PID/statm)."""

_ROUNDS, _QUICK_ROUNDS = 200, 24
_SIZES = range(2, 13)
_LIMIT = 1.05


def run(plan: measure.Plan) -> Section:
    """Runs the rounds in a new process, which has no memory of earlier sections."""
    rounds = _QUICK_ROUNDS if plan.quick else _ROUNDS
    measure.note(f"memory: {rounds} rounds")
    measured = processes.watched(
        "benchmarks.memory",
        str(rounds),
        look=lambda pid: {"memory_mb": processes.resident_memory(pid)},
    )
    sizes = [row["memory_mb"] for row in measured]
    early = rounds // 10
    shown = sorted({early, rounds // 4, rounds // 2, rounds})
    rows = [{"round": r, "memory_mb": sizes[r - 1]} for r in shown]
    ratio = sizes[-1] / sizes[early - 1]
    target = Target(f"memory after round {rounds} over round {early}", ratio, _LIMIT)
    table = Table("Memory", {"round": "round", "memory (MB)": "memory_mb"}, rows)
    return Section("Memory over rounds", _TEXT.format(rounds=rounds), [table], [target])


def cohort_sizes(rounds: int) -> list[int]:
    """The cohort size of each round: all sizes in random order, repeatedly."""
    generator = np.random.default_rng(0)
    cycles = -(-rounds // len(_SIZES))
    sizes = np.concatenate([generator.permutation(_SIZES) for _ in range(cycles)])
    return sizes[:rounds].tolist()


def run_rounds(rounds: int) -> None:
    """Runs FedAvg with varying cohort sizes, and pauses after each round."""
    from benchmarks.workloads import synthetic
    from tff_pcdd.training import ExperimentConfig, Simulation, TrainingConfig

    config = ExperimentConfig(
        data=synthetic(16 * _SIZES[-1], _SIZES[-1], (8, 8, 1)),
        training=TrainingConfig(local_epochs=1, batch_size=8),
    )
    with Simulation(config) as simulation:
        for size in cohort_sizes(rounds):
            simulation.cohort_size = size
            simulation.next_round()
            gc.collect()
            processes.pause()


if __name__ == "__main__":
    run_rounds(int(sys.argv[1]))
