"""Section `gpu_record`: BlazeFL's own benchmark, all of it, on one GPU."""

from __future__ import annotations

import dataclasses
import functools
import json
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks import blazefl, measure
from benchmarks.gpu import children
from benchmarks.gpu.ledger import Ledger, Measurements, can_measure, unmeasured
from benchmarks.report import Section, Table, Target
from benchmarks.workloads import Workload

_TITLE = "GPU: BlazeFL's benchmark"
_TEXT = """\
{made_with}

{workload}; {rounds} rounds with all clients, SGD with a learning rate of 0.1 and nothing else, and
an evaluation of the global model on 10,000 images after each round. BlazeFL's authors report 25 s
for the CNN and 128 s for torchvision's ResNet18, on four Quadro RTX 6000 and 32 cores (docs/imgs in
blazefl/blazefl, commit 6dcb310; read off the pictures, ±2 s).

*Seconds* are those of all rounds, of which the first includes tracing and compiling; *warm* is the
number of rounds times the median of the others. *Weights* is a hash of the last weights: where
`--deterministic` is set, it has to be the same each time, in processes of their own."""

_ROUNDS = 5
# By backbone, the bound on the seconds of all rounds.
_LIMITS = {"simple_cnn": 8.0, "resnet18_imagenet": 64.0}
# By the order of importance: backbone, precision, deterministic, clients at a time, number.
_CASES = (
    ("simple_cnn", "float32", True, 1, 0),
    ("resnet18_imagenet", "float32", True, 1, 0),
    ("simple_cnn", "float32", True, 1, 1),
    ("simple_cnn", "float32", True, 4, 0),
    ("resnet18_imagenet", "tf32", True, 1, 0),
    ("resnet18_imagenet", "float32", True, 1, 1),
    ("simple_cnn", "tf32", False, 1, 0),
    ("resnet18_imagenet", "bfloat16", True, 1, 0),
    ("simple_cnn", "bfloat16", False, 1, 0),
)
_NAMES = ("precision", "deterministic", "at_a_time", "number")
_PATIENCE = 300


def run(plan: measure.Plan) -> Section:
    """Measures what the file lacks until the time is over."""
    if not can_measure(plan):
        return unmeasured(_TITLE)
    ledger = Ledger(plan, "gpu_record")
    for model, *values in _CASES[:3:2] if plan.quick else _CASES:
        case = dict(zip(_NAMES, values, strict=True))
        name = f"{model}, {', '.join(map(str, values))}"
        if not ledger.lacks(name) or not ledger.left():
            continue
        measure.note(f"gpu_record: {name}")
        program = functools.partial(_program, _workload(model, plan.quick), plan)
        for _, found in children.measured_in_turn(program, [case], ledger, _PATIENCE):
            ledger.record(name, {"model": model, **case, **found})
    return section(ledger)


def _workload(model: str, quick: bool) -> Workload:
    """BlazeFL's work, for all of its clients."""
    return dataclasses.replace(blazefl.workload_of(10, quick), model=model)


def _program(
    workload: Workload, plan: measure.Plan, cases: Sequence[children.Case]
) -> children.Program:
    fields, rounds = json.dumps(dataclasses.asdict(workload)), 2 if plan.quick else _ROUNDS
    arguments = [fields, str(rounds), plan.data_dir or "", json.dumps(list(cases))]
    return children.own("benchmarks.gpu.record_case", *arguments)


def section(measured: Measurements) -> Section:
    """The runs, and the targets."""
    quick = measured.made_with["quick"]
    rows = [_row(case) for case in measured.cases.values()]
    columns = {
        "backbone": "model",
        "precision": "precision",
        "deterministic": "deterministic",
        "clients at a time": "at_a_time",
        "seconds": "total",
        "warm": "warm",
        "images": "images",
        "accuracy (%)": "accuracy",
        "memory (MB)": "memory_mb",
        "weights": "weights",
        "": "note",
    }
    text = _TEXT.format(
        made_with=measured.text(),
        workload=_workload("simple_cnn", quick).size,
        rounds=2 if quick else _ROUNDS,
    )
    return Section(_TITLE, text, [Table(_TITLE, columns, rows)], targets_of(rows))


def _row(case: Mapping[str, Any]) -> dict[str, Any]:
    row = {**case, "deterministic": "yes" if case["deterministic"] else "no"}
    if "seconds" in case:
        others = sorted(case["seconds"][1:])
        row["warm"] = len(case["seconds"]) * others[len(others) // 2]
        row["accuracy"] = case["accuracies"][-1]
    return row


def targets_of(rows: Sequence[Mapping[str, Any]]) -> list[Target]:
    """Seconds of deterministic runs, and how many different results equal ones have."""
    targets = []
    for model, limit in _LIMITS.items():
        of_model = [
            row
            for row in rows
            if row["model"] == model and row["deterministic"] == "yes" and "total" in row
        ]
        best = min((row["total"] for row in of_model), default=None)
        targets.append(Target(f"seconds of BlazeFL's benchmark, {model}", best, limit))
        weights: dict[str, list[str]] = {}
        for row in of_model:
            weights.setdefault(row["precision"], []).append(row["weights"])
        different = [len(set(found)) for found in weights.values() if len(found) > 1]
        text = f"different weights of repeated deterministic runs, {model}"
        targets.append(Target(text, max(different, default=None), 1))
    return targets
