"""BlazeFL's benchmark on a GPU: part of section `gpu_record`, in a process of its own.

`python -m benchmarks.gpu.record_case WORKLOAD ROUNDS DATA_DIR CASES`, with the fields of the
workload and a list of cases {precision, deterministic, at_a_time, number} as JSON, of which it
computes the first, prints a line of JSON. DATA_DIR is the folder with CIFAR-10, or empty.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import sys
import time
from typing import Any

import numpy as np
import tensorflow as tf

from benchmarks.gpu.contexts import create_context
from benchmarks.gpu.speed_case import memory
from benchmarks.workloads import Rounds, Workload, divided
from tff_pcdd import data, evaluation, federated, runtime
from tff_pcdd.data import sources
from tff_pcdd.experiment.model_evaluation import as_arrays
from tff_pcdd.experiment.simulation import training_spec
from tff_pcdd.runtime import _tf_private

# Test images if images are random, as many as CIFAR-10 has.
_TEST = 10_000


def measure(workload: Workload, rounds: int, data_dir: str, case: dict[str, Any]) -> dict[str, Any]:
    """Seconds of each round with its evaluation, accuracies, and a digest of the last weights."""
    context = create_context(case["at_a_time"])
    context.tensor_float_32 = case["precision"] == "tf32"
    context.deterministic = case["deterministic"]
    start = time.perf_counter()
    config = workload.config(precision=case["precision"])
    if data_dir:
        source = sources.create("cifar10", data_dir=data_dir)
        partition = divided(workload.clients, workload.shards)
        config = dataclasses.replace(config, data=data.DataConfig(source, partition))
    federation = config.data.build()
    spec = dataclasses.replace(training_spec(config, federation), compile="client")
    test = as_arrays(federation.test)
    if not data_dir:
        repeats = -(-_TEST // len(federation.test))
        for name, values in test.items():
            test[name] = np.concatenate([values] * repeats)[:_TEST]
    clients = [federation.client_examples(k)[0] for k in range(workload.clients)]
    seconds, accuracies = [], []
    with runtime.installed(context):
        process = federated.build_process(spec)
        consecutive = Rounds(process, clients)
        prepared = time.perf_counter() - start
        for _ in range(rounds):
            start = time.perf_counter()
            consecutive.next()
            found = process.evaluate_global(consecutive.state, test)
            seconds.append(time.perf_counter() - start)
            accuracies.append(evaluation.accuracy(found["correct"]["head"], found["total"]))
    weights = consecutive.state.weights
    digest = hashlib.sha256()
    for value in tf.nest.flatten(weights):
        digest.update(np.asarray(value).tobytes())
    return {
        "images": "CIFAR-10" if data_dir else "random",
        "prepared": prepared,
        "seconds": seconds,
        "total": sum(seconds),
        "accuracies": accuracies,
        "weights": digest.hexdigest()[:16],
        "memory_mb": memory(),
    }


if __name__ == "__main__":
    fields, number = json.loads(sys.argv[1]), int(sys.argv[2])
    (first, *_) = json.loads(sys.argv[4])
    first.pop("number")
    # Also what is computed before the first round.
    _tf_private.require_determinism(first["deterministic"])
    print(json.dumps(measure(Workload(**fields), number, sys.argv[3], first)), flush=True)
