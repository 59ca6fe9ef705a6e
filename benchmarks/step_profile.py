"""What a local step takes, by operation: part of section `local_step`, in a process of its own.

`python -m benchmarks.step_profile NUMBER THREADS QUICK` trains rounds of a workload, one
client and one operation at a time, with the given number of threads in an operation, and prints as
JSON the seconds of a step without the profiler and those of each operation with it.
"""

from __future__ import annotations

import json
import os
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks import measure

_ROUNDS = 5


def profile(number: int, rounds: int, quick: bool) -> dict[str, Any]:
    """Trains and measures.

    Args:
        number: of the workload.
        rounds: with and without the profiler.
        quick: whether to use the tiny workloads.

    Returns:
        A dict:
            step: least seconds of a round without the profiler, divided by its steps.
            operations: for each operation of a step, its name, type, executions per step, and the
                least seconds of an execution.
            products: of the network's layers, as dicts.
    """
    import tensorflow as tf
    import tensorflow_federated as tff

    from benchmarks import plain, step_flops, workloads
    from tff_pcdd import federated
    from tff_pcdd.runtime import inprocess

    workload = (workloads.QUICK_WORKLOADS if quick else workloads.WORKLOADS)[number]
    tff.framework.set_default_context(inprocess.create_context(client_parallelism=1))
    spec, clients = workload.build()
    model = plain.keras_model(spec)
    consecutive = workloads.Rounds(federated.build_process(spec), clients)
    steps = workload.clients * workload.epochs * (workload.samples // workload.batch_size)
    consecutive.next()
    seconds = [measure.time_call(consecutive.next) for _ in range(rounds)]
    with tempfile.TemporaryDirectory() as folder:
        tf.profiler.experimental.start(folder)
        for _ in range(rounds):
            consecutive.next()
        tf.profiler.experimental.stop()
        times = _operation_times(Path(folder))
    operations = [
        {
            "name": name.rpartition(":")[0],
            "type": _type(name),
            "executions": round(len(found) / (steps * rounds)),
            "seconds": min(found),
        }
        for name, found in times.items()
        # Others belong to the round and not to the step.
        if len(found) >= steps * rounds / 2
    ]
    products = step_flops.products(model, workload.batch_size)
    return {
        "step": min(seconds) / steps,
        "operations": operations,
        "products": [vars(product) for product in products],
    }


def _operation_times(directory: Path) -> dict[str, list[float]]:
    """Reads what `tf.profiler.experimental` has recorded of operations on the CPU.

    Args:
        directory: the log directory of one profile.

    Returns:
        The seconds of each execution, by "name:type" of the operation. TensorFlow does not record
        operations that it considers cheap.
    """
    from tensorflow.tsl.profiler.protobuf import xplane_pb2

    (path,) = directory.glob("plugins/profile/*/*.xplane.pb")
    space = xplane_pb2.XSpace.FromString(path.read_bytes())
    times: dict[str, list[float]] = {}
    for plane in space.planes:
        for line in plane.lines:
            for event in line.events:
                name = plane.event_metadata[event.metadata_id].name
                if ":" in name and " " not in name and not name.startswith("ExecutorState"):
                    times.setdefault(name, []).append(event.duration_ps / 1e12)
    return times


def _type(name: str) -> str:
    """The type of an operation, without the prefixes of its implementation by oneDNN."""
    return re.sub(r"^_Mkl(Native)?", "", name.rpartition(":")[2].partition("#")[0])


if __name__ == "__main__":
    index, threads, is_quick = map(int, sys.argv[1:])
    os.environ["TF_NUM_INTRAOP_THREADS"] = str(threads)
    os.environ["TF_NUM_INTEROP_THREADS"] = "1"
    print(json.dumps(profile(index, 1 if is_quick else _ROUNDS, bool(is_quick))))
