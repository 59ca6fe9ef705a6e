"""Section `local_step`: where the time of a local step goes, against what the processor can do."""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks import measure, processes, roofline
from benchmarks.report import Section, Table

_TEXT = """\
A local step of FedAvg on the runtime `inprocess`, one client and one operation at a time, each in
one thread unless a table says otherwise. Seconds of an operation are those of its fastest
execution, measured with TensorFlow's profiler; seconds of a step are those of the fastest round
without the profiler, divided by its steps. Floating-point operations (FLOP) are counted from the
layers' shapes, padding included, two for a multiplication and an addition.

The peak is the faster of a large product of matrices and a 3×3 convolution with 128 channels, both
in float32 and with the same number of threads; bandwidth is that of adding two large vectors. Both
are those of single calls in a process of its own, measured before and after the steps, and the
higher values count: products in a step may still be faster. In `3×3/2`, 2 is the stride. Gradients
that are computed as products of matrices, as in ResNet18's 3×3 convolutions of 4×4 images, belong
to no layer in the profile: the table of parts has a row for them, the table of products lacks them.

In the picture, the line is the roof: bandwidth on the left, the peak on the right. A marker is a
product of one kind of layer; *FLOP per byte* counts inputs and results in float32 once.

docs/local_step.md explains the shares of the peak, and reports what was tried to raise them."""

# By the name of a layer in the names of operations.
_LAYER = re.compile(r"/((?:conv2d|dense)(?:_\d+)?)/(?:Conv2D|MatMul|BiasAdd|Relu)")

# Of operations that belong to no product: the type and the group. The first that matches counts.
_GROUPS = (
    # Those of dense layers belong to products.
    (r"MatMul", "convolutions, gradients as products of matrices"),
    (r"BatchNorm", "batch normalization"),
    (r"^(Pad|Slice)$", "padding, and cutting it off gradients"),
    (r"Pool", "pooling"),
    (r"Relu", "ReLU, not fused"),
    (r"L2Loss|ResourceApplyMomentum", "clipping, decay and SGD"),
)
_OPTIMIZER_TYPES = ("Mul", "AddV2")
_OPTIMIZER, _OTHER = "clipping, decay and SGD", "other recorded operations"


def run(plan: measure.Plan) -> Section:
    """Measures the peaks and all workloads, each in processes of their own."""
    from benchmarks.workloads import QUICK_WORKLOADS, WORKLOADS

    quick = int(plan.quick)
    counts = [1] if plan.quick else sorted({1, len(os.sched_getaffinity(0))})
    workloads = QUICK_WORKLOADS if quick else WORKLOADS
    before = _measure_peaks(counts, quick)
    profiles = {}
    for (number, workload), threads in itertools.product(enumerate(workloads), counts):
        measure.note(f"local step: {workload.model}, {threads} thread(s)")
        profiles[workload.model, threads] = processes.measured_by(
            "benchmarks.step_profile", number, threads, quick
        )
    # A machine that other machines share may be slow for some seconds.
    peaks = before if quick else highest(before, _measure_peaks(counts, quick))
    tables = [_peak_table(peaks)]
    points = {}
    for workload in workloads:
        profile = profiles[workload.model, 1]
        products = points[workload.model] = product_rows(profile, peak_of(peaks[1]))
        tables.append(_group_table(workload.model, profile, products))
        tables.append(_product_table(workload.model, products))
    steps = [
        _step_row(model, threads, profile, peaks[threads])
        for (model, threads), profile in profiles.items()
    ]
    tables.insert(1, Table("Steps", _STEP_COLUMNS, steps))
    figure = roofline.draw(points, {1: (peak_of(peaks[1]), peaks[1]["traffic"])})
    return Section("Local step", _TEXT, tables, figures={"local_step.png": figure})


def _measure_peaks(counts: Sequence[int], quick: int) -> dict[int, dict[str, float]]:
    """By number of threads, what `peak` measures."""
    found = {}
    for threads in counts:
        measure.note(f"local step: peak of {threads} thread(s)")
        found[threads] = processes.measured_by("benchmarks.peak", threads, quick)
    return found


def highest(
    first: Mapping[int, Mapping[str, float]], second: Mapping[int, Mapping[str, float]]
) -> dict[int, dict[str, float]]:
    """The higher of two measurements of each peak."""
    return {
        threads: {name: max(value, second[threads][name]) for name, value in peaks.items()}
        for threads, peaks in first.items()
    }


def peak_of(peaks: Mapping[str, float]) -> float:
    """The most FLOP per second in float32."""
    return max(peaks["matmul_float32"], peaks["conv_float32"])


def product_rows(profile: Mapping[str, Any], peak: float) -> list[dict[str, Any]]:
    """The products of a step, those of equal layers together.

    Args:
        profile: as `step_profile.profile` returns it.
        peak: FLOP per second of the processor.

    Returns:
        A row for each shape and kind; products that were not recorded are left out.
    """
    seconds: dict[tuple[str, str], float] = {}
    for operation in profile["operations"]:
        key = product_of(operation["name"], operation["type"])
        if key is not None:
            spent = operation["seconds"] * operation["executions"]
            seconds[key] = seconds.get(key, 0) + spent
    rows: dict[tuple[str, str], dict[str, Any]] = {}
    for product in profile["products"]:
        if (product["layer"], product["kind"]) not in seconds:
            continue
        row = rows.setdefault(
            (product["shape"], product["kind"]),
            {"shape": product["shape"], "kind": product["kind"], "layers": 0}
            | dict.fromkeys(("flops", "traffic", "seconds"), 0),
        )
        row["layers"] += 1
        row["flops"] += product["flops"]
        row["traffic"] += product["traffic"]
        row["seconds"] += seconds[product["layer"], product["kind"]]
    for row in rows.values():
        row["ms"] = 1000 * row["seconds"]
        row["gflop"] = row["flops"] / 1e9
        row["rate"] = row["flops"] / row["seconds"] / 1e9
        row["of_peak"] = row["flops"] / row["seconds"] / peak
        row["intensity"] = row["flops"] / row["traffic"]
    return list(rows.values())


def product_of(name: str, kind: str) -> tuple[str, str] | None:
    """The layer and the kind of the product that an operation computes; None for others.

    Args:
        name: of the operation.
        kind: its type.
    """
    match = _LAYER.search(name)
    if match is None or not re.search("Conv2D|MatMul", kind):
        return None
    if "gradient_tape" not in name:
        return match[1], "forward"
    # TensorFlow numbers the two gradients of a matrix product: first that of its input.
    to_weights = "BackpropFilter" in kind or name.endswith("MatMul_1")
    return match[1], "gradient of weights" if to_weights else "gradient of input"


def group_of(name: str, kind: str) -> str:
    """The row of an operation in the table of a step's parts."""
    product = product_of(name, kind)
    if product is not None:
        layers = "dense layers" if product[0].startswith("dense") else "convolutions"
        return f"{layers}, {product[1]}"
    for pattern, group in _GROUPS:
        if re.search(pattern, kind):
            return group
    # Inside of a network, the names of its layers follow; those of the optimizer have no folder.
    in_network = "gradient_tape" in name or re.search(r"/(resnet|simple_cnn)\w*/", name)
    return _OPTIMIZER if kind in _OPTIMIZER_TYPES and not in_network else _OTHER


def _group_table(model: str, profile, products: Sequence[Mapping[str, Any]]) -> Table:
    spent: dict[str, float] = {}
    for operation in profile["operations"]:
        group = group_of(operation["name"], operation["type"])
        seconds = operation["seconds"] * operation["executions"]
        spent[group] = spent.get(group, 0) + seconds
    flops: dict[str, float] = {}
    for row in products:
        kind = "dense layers" if row["shape"].startswith("dense") else "convolutions"
        group = f"{kind}, {row['kind']}"
        flops[group] = flops.get(group, 0) + row["flops"]
    rows = [
        {
            "part": group,
            "ms": 1000 * seconds,
            "share": seconds / profile["step"],
            "rate": flops[group] / seconds / 1e9 if group in flops else None,
        }
        for group, seconds in sorted(spent.items(), key=lambda item: -item[1])
    ]
    rest = profile["step"] - sum(spent.values())
    rows.append(
        {"part": "the rest: small operations, executor, slower executions", "ms": 1000 * rest}
        | {"share": rest / profile["step"]}
    )
    columns = {"part": "part", "ms": "ms", "share of the step": "share", "GFLOP/s": "rate"}
    return Table(f"{model}: parts of a step", columns, rows)


def _product_table(model: str, rows) -> Table:
    columns = {
        "layer": "shape",
        "layers": "layers",
        "product": "kind",
        "GFLOP": "gflop",
        "ms": "ms",
        "GFLOP/s": "rate",
        "of the peak": "of_peak",
    }
    return Table(f"{model}: products", columns, rows)


_STEP_COLUMNS = {
    "model": "model",
    "threads": "threads",
    "GFLOP in a step": "gflop",
    "ms": "ms",
    "GFLOP/s": "rate",
    "of the peak": "of_peak",
}


def _step_row(model: str, threads: int, profile, peaks) -> dict[str, Any]:
    flops = sum(product["flops"] for product in profile["products"])
    return {
        "model": model,
        "threads": threads,
        "gflop": flops / 1e9,
        "ms": 1000 * profile["step"],
        "rate": flops / profile["step"] / 1e9,
        "of_peak": flops / profile["step"] / peak_of(peaks),
    }


def _peak_table(peaks: Mapping[int, Mapping[str, float]]) -> Table:
    columns = {"threads": "threads"}
    for kind in ("float32", "bfloat16"):
        columns[f"matrices, {kind}, GFLOP/s"] = f"matmul_{kind}"
        columns[f"convolution, {kind}, GFLOP/s"] = f"conv_{kind}"
    columns["bandwidth, GB/s"] = "traffic"
    rows = [
        {"threads": threads} | {key: value / 1e9 for key, value in found.items()}
        for threads, found in peaks.items()
    ]
    return Table("Peak", columns, rows)
