"""Section `soak`: whether memory grows over many rounds on Ray actors.

`python -m benchmarks.soak ROUNDS CLIENTS COHORT ACTORS` runs the rounds; after each of
them it prints seconds and the size of Ray's objects as JSON, and waits.
"""

from __future__ import annotations

import contextlib
import gc
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks import measure, processes
from benchmarks.report import Section, Table, Target
from tff_pcdd.runtime.processes import children

_TEXT = """\
{rounds} rounds of FedPer on {actors} Ray actors on this machine, with a cohort of {cohort} out of
{clients:,} clients, in a process of its own. Each client has 16 images of 8×8 and keeps its head
between rounds, on disk (`--client_store=disk`). The table shows memory after a round: the resident
memory of the driver and of all actors together, read from outside (/proc/PID/statm), and the size
of the objects in Ray's shared memory."""

# Rounds, clients, cohort and actors.
_SIZES, _QUICK_SIZES = (100, 10_000, 500, 4), (4, 40, 8, 2)
_LIMIT = 1.05


def run(plan: measure.Plan) -> Section:
    """Runs the rounds in a new process, which holds no memory of earlier sections."""
    sizes = _QUICK_SIZES if plan.quick else _SIZES
    rounds, clients, cohort, actors = sizes
    text = _TEXT.format(rounds=rounds, clients=clients, cohort=cohort, actors=actors)
    if not processes.has_ray():
        return Section("Soak", text, [processes.without_ray("Soak")])
    measure.note(f"soak: {rounds} rounds")
    measured = processes.watched("benchmarks.soak", *map(str, sizes), look=_memory)
    early = max(rounds // 5, 1)
    shown = sorted({early, rounds // 2, rounds})
    targets = [
        Target(
            f"memory of the {what} after round {rounds} over round {early}, Ray",
            measured[-1][key] / measured[early - 1][key],
            _LIMIT,
        )
        for what, key in (("driver", "driver_mb"), ("actors", "actors_mb"))
    ]
    columns = {
        "round": "round",
        "seconds": "seconds",
        "driver (MB)": "driver_mb",
        "actors (MB)": "actors_mb",
        "shared objects (MB)": "objects_mb",
    }
    rows = [{"round": number, **measured[number - 1]} for number in shown]
    return Section("Soak", text, [Table("Soak", columns, rows)], targets)


def run_rounds(rounds: int, clients: int, cohort: int, actors: int) -> None:
    """Runs the rounds, and pauses after each with its seconds."""
    from benchmarks.workloads import synthetic
    from tff_pcdd import methods, models, runtime
    from tff_pcdd.runtime.ray import cluster
    from tff_pcdd.training import ComputeOptions, ExperimentConfig, Simulation, TrainingConfig
    from tff_pcdd.training.disk_store import DiskStore

    config = ExperimentConfig(
        method=methods.create("fedper"),
        data=synthetic(16 * clients, clients, (8, 8, 1)),
        model=models.ModelConfig(models.create("mlp")),
        training=TrainingConfig(
            rounds=rounds, clients_per_round=cohort, local_epochs=1, batch_size=16
        ),
    )
    compute = ComputeOptions(runtime=runtime.create("ray", ray_actors=actors))
    with contextlib.ExitStack() as stack:
        # Room for all actors, even on a machine with fewer cores.
        stack.enter_context(cluster.connected(None, num_cpus=actors))
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        simulation = stack.enter_context(
            Simulation(config, compute=compute, store=lambda initial: DiskStore(initial, folder))
        )
        for _ in range(rounds):
            start = time.perf_counter()
            simulation.next_round()
            seconds = time.perf_counter() - start
            # As with a checkpoint after each round; until then, the store remembers what it wrote.
            simulation.store.snapshot()
            simulation.store.forget_before(simulation.round)
            gc.collect()
            processes.pause(seconds=seconds, objects_mb=_objects())


def _memory(driver: int) -> dict[str, Any]:
    """Memory of the driver and of its actors in MB."""
    return {
        "driver_mb": processes.resident_memory(driver),
        "actors_mb": sum(map(processes.resident_memory, _actor_processes(driver))),
    }


def _actor_processes(driver: int) -> list[int]:
    found = []
    for pid in children(driver):
        with contextlib.suppress(OSError):
            if b"ray::ShareActor" in Path(f"/proc/{pid}/cmdline").read_bytes():
                found.append(pid)
    return found


def _objects() -> float:
    """The size of the objects in Ray's shared memory, in MB."""
    import ray

    name = "object_store_memory"
    return (ray.cluster_resources()[name] - ray.available_resources().get(name, 0)) / 1e6


if __name__ == "__main__":
    run_rounds(*map(int, sys.argv[1:]))
