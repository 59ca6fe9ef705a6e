"""Section `runtimes`: a FedAvg round on every runtime, in plain TensorFlow and in stock TFF."""

from __future__ import annotations

import contextlib
import statistics
import warnings
from collections.abc import Callable
from typing import Any

import tensorflow as tf
import tensorflow_federated as tff

from benchmarks import measure, plain, processes
from benchmarks.report import Section, Table, Target
from benchmarks.workloads import QUICK_WORKLOADS, WORKLOADS, Rounds, Workload
from tff_pcdd import data, federated, runtime
from tff_pcdd.federated import SGD, TrainingSpec
from tff_pcdd.runtime import inprocess, launcher, worker

_TEXT = """\
`plain` is the reference: a TensorFlow training loop over the clients, one after the other.
`inprocess` (with its default settings, on two cores two clients at a time, and with one client at a
time), `tff` (TFF's C++ worker) and `ray` (two actors on this machine, with one core each) run this
project's computations. `stock` is `tff.learning.algorithms.build_weighted_fed_avg` in TFF's own
default context. Seconds are medians; a ratio is the median of the ratios within a repeat.

All have the same clients, batches and network, and the rounds of `plain` give the same weights as
this project's. `plain` has one Keras model and one `tf.function`, a cached `tf.data` pipeline per
client (raw images → shuffle → batch → normalize → prefetch), this project's SGD, and a weighted
mean in TensorFlow. It iterates over `iter(dataset)`, because TensorFlow turns `for x, y in dataset`
into `Dataset.reduce`, which is slower; `stock`'s default loop is such a reduction.
`stock` neither clips gradients nor decays weights, and does not average the statistics of batch
normalization, about which TFF warns."""

# By workload: contender, reference, and the lower bound on the ratio of their speeds.
_TARGETS = {
    "simple_cnn": (
        ("inprocess", "plain", 0.90),
        ("inprocess", "stock", 1.8),
        ("ray", "inprocess", 1.1),
    ),
    "resnet18": (("inprocess", "plain", 0.97), ("ray", "inprocess", 0.90)),
}

Contender = Callable[[], object]


def run(plan: measure.Plan) -> Section:
    """Measures all workloads."""
    tables, targets, bars = [], [], {}
    for workload in QUICK_WORKLOADS if plan.quick else WORKLOADS:
        seconds, refused = _measure(workload, plan)
        rows = [_row(name, seconds) for name in seconds]
        rows += [{"contender": name, "note": reason} for name, reason in refused.items()]
        tables.append(_table(workload, rows))
        targets += _targets(workload, seconds)
        bars.update(
            {
                f"{row['contender']}, {workload.model}": row["share"]
                for row in rows[1:]
                if "share" in row
            }
        )
    picture = ("speed of a FedAvg round over the plain loop's", bars, 1.0)
    return Section("Runtimes", _TEXT, tables, targets, picture)


def _measure(workload, plan) -> tuple[dict[str, list[float]], dict[str, str]]:
    """Seconds of each contender, and the reasons why others cannot run."""
    previous = tff.framework.get_context_stack().current
    with contextlib.ExitStack() as stack:
        stack.callback(tff.framework.set_default_context, previous)
        stack.enter_context(processes.ended_afterwards())
        contenders, refused = _contenders(workload, stack)
        seconds = measure.alternate(contenders, plan.repeats, f"runtimes: {workload.model}")
    return seconds, refused


def _contenders(workload: Workload, stack: contextlib.ExitStack):
    spec, clients = workload.build()
    contenders: dict[str, Contender] = {"plain": plain.PlainLoop(spec, clients).next}
    process = federated.build_process(spec)
    contexts: dict[str, Any] = {
        "inprocess": inprocess.create_context(),
        "inprocess, one at a time": inprocess.create_context(client_parallelism=1),
    }
    # Elsewhere the worker would be open to every machine that reaches this one.
    if launcher.can_isolate():
        contexts["tff"] = worker.create_context()
    if processes.has_ray():
        contexts["ray"] = runtime.create("ray", ray_actors=2).create_context()
    for context in contexts.values():
        stack.callback(context.close)
    for name, context in contexts.items():
        contenders[name] = _within(context, lambda: Rounds(process, clients).next)
    refused = {}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        context = tff.backends.native.create_sync_local_cpp_execution_context()
        try:
            contenders["stock"] = _within(context, lambda: stock_rounds(spec, clients))
        # If TFF refuses the model, the report shows the reason, whatever it is.
        except Exception as error:
            refused["stock"] = f"refused: {error}".splitlines()[0]
    for reason in {str(warning.message) for warning in caught if "Batch" in str(warning.message)}:
        measure.note(f"stock TFF warns: {reason}")
    return contenders, refused


def _within(context: tff.framework.SyncContext, make: Callable[[], Contender]) -> Contender:
    """Creates a contender in a context, and runs it there."""
    tff.framework.set_default_context(context)
    contender = make()

    def call():
        tff.framework.set_default_context(context)
        contender()

    return call


def stock_rounds(spec: TrainingSpec, clients: list[data.Examples]) -> Contender:
    """TFF's own FedAvg on `tf.data` data sets."""
    datasets = [plain.dataset_of(c, spec) for c in clients]

    def model_fn():
        return tff.learning.models.from_keras_model(
            plain.in_one(spec.network()),
            loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            input_spec=datasets[0].element_spec,
        )

    optimizer = spec.optimizer
    assert isinstance(optimizer, SGD)
    process = tff.learning.algorithms.build_weighted_fed_avg(
        model_fn,
        tff.learning.optimizers.build_sgdm(optimizer.learning_rate, optimizer.momentum),
    )
    state = process.initialize()

    def next_round():
        nonlocal state
        state = process.next(state, datasets).state

    return next_round


def _row(name, seconds) -> dict:
    row = {
        "contender": name,
        "seconds": seconds[name],
        "median": statistics.median(seconds[name]),
        "share": measure.paired_ratio(seconds["plain"], seconds[name]),
    }
    if "stock" in seconds:
        row["over_stock"] = measure.paired_ratio(seconds["stock"], seconds[name])
    return row


def _table(workload, rows) -> Table:
    columns = {
        "contender": "contender",
        "seconds a round": "median",
        "speed / plain's": "share",
        "speed / stock TFF's": "over_stock",
        "": "note",
    }
    return Table(str(workload), columns, rows)


def _targets(workload, seconds) -> list[Target]:
    targets = []
    for name, other, limit in _TARGETS[workload.model]:
        value = None
        if name in seconds and other in seconds:
            value = measure.paired_ratio(seconds[other], seconds[name])
        text = f"speed of {name} over {other}, {workload.model}"
        targets.append(Target(text, value, limit, at_least=True))
    return targets
