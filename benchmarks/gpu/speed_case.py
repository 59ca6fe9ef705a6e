"""Trains rounds on a GPU: part of section `gpu_speed`, in a process of its own.

`python -m benchmarks.gpu.speed_case WORKLOAD CLIENTS QUICK CASES`, with the fields of the workload,
and a list of cases {precision, compile}, as JSON, and the number of clients that train at the same
time on the GPU, prints a line of JSON for each case.
"""

from __future__ import annotations

import dataclasses
import gc
import json
import statistics
import sys
import time
from typing import Any

import tensorflow as tf

from benchmarks import plain, step_flops
from benchmarks.gpu.contexts import create_context, device
from benchmarks.gpu.products import SimpleCNNWithProducts
from benchmarks.peer_work import weight_names
from benchmarks.workloads import Rounds, Workload
from tff_pcdd import federated, runtime
from tff_pcdd.federated import TrainingSpec
from tff_pcdd.models.backbone import registry

# Rounds that count, after one that compiles and one that warms up.
ROUNDS = 5


def flops_per_sample(spec: TrainingSpec) -> int:
    """Floating-point operations of the products of a training step, for one sample."""
    model = plain.keras_model(spec)
    total = step_flops.total(step_flops.products(model, 1))
    for layer in model.layers:
        if isinstance(layer, tf.keras.layers.LSTM):
            _, length, width = layer.input_shape
            # Four gates; forward, and the gradients of inputs and weights.
            total += 3 * 2 * length * (width + layer.units) * 4 * layer.units
    return total


def measure(
    context: Any, workload: Workload, precision: str, compile: str, is_quick: bool
) -> dict[str, Any]:
    """Seconds of the first round and of the others, memory of the GPU, and samples per second."""
    spec, clients = workload.build(precision=precision)
    spec = dataclasses.replace(spec, compile=compile)
    samples = workload.clients * workload.samples * workload.epochs
    with runtime.installed(context):
        rounds = Rounds(federated.build_process(spec), clients)
        start = time.perf_counter()
        rounds.next()
        first = time.perf_counter() - start
        weights = rounds.state.weights
        seconds = []
        for number in range(1 + (1 if is_quick else ROUNDS)):
            start = time.perf_counter()
            rounds.next()
            if number:
                seconds.append(time.perf_counter() - start)
    return {
        "first_round": first,
        "seconds": seconds,
        "samples_per_second": samples / statistics.median(seconds),
        "memory_mb": memory(),
        "norms": norms(weights, weight_names(spec)),
    }


def norms(weights: Any, names: list[str]) -> dict[str, float]:
    """The Euclidean norms of the trained weights, by name, which PyTorch's are compared with."""
    values = [*weights["trainable"], *weights["statistics"]]
    pairs = zip(names, values, strict=True)
    return {name: float(tf.norm(value)) for name, value in pairs if "/moving_" not in name}


def memory() -> float | None:
    """Most memory in MB that TensorFlow has used on the GPU since the last call."""
    logical = [each.name for each in tf.config.list_logical_devices("GPU")]
    if not logical:
        return None
    total = 0
    for name in logical:
        total += tf.config.experimental.get_memory_info(name.removeprefix("/device:"))["peak"]
        tf.config.experimental.reset_memory_stats(name.removeprefix("/device:"))
    return total / 1e6


def main() -> None:
    """Measures all cases; an error of one is its note."""
    registry.register(SimpleCNNWithProducts)
    fields, at_a_time, is_quick, cases = map(json.loads, sys.argv[1:])
    workload = Workload(**fields)
    context = create_context(at_a_time)
    with tf.device(device()):
        flops = flops_per_sample(workload.build()[0])
    for case in cases:
        context.tensor_float_32 = case["precision"] == "tf32"
        try:
            found = measure(context, workload, **case, is_quick=bool(is_quick))
            found["flops"] = flops * found["samples_per_second"]
        # Whatever fails in one case, others may be measured.
        except Exception as error:
            found = {"note": f"{type(error).__name__}: {' '.join(str(error).split())}"[:1500]}
        print(json.dumps(found), flush=True)
        gc.collect()


if __name__ == "__main__":
    main()
