"""Section `gpu_graphs`: what a CUDA graph of all steps of a client brings to a small network."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import json
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks import measure
from benchmarks.gpu import children
from benchmarks.gpu.ledger import Ledger, Measurements, can_measure, unmeasured
from benchmarks.gpu.speed import PATIENCE, QUICK, WORKLOADS, deviation
from benchmarks.report import Section, Table

_TITLE = "GPU: graphs"
_TEXT = """\
{made_with}

Rounds of FedAvg on one GPU, {workload}, in float32 with `--compile=client`. The processor has to
start every kernel of a step, unless XLA has put it into a CUDA graph. It cannot put convolutions
there. `simple_cnn_products` is the same network with products of patches in their place. *Loops*
says whether the whole loop over the steps may become a graph, by these flags:

```
XLA_FLAGS={flags}
```

*Deviation* is the largest relative difference of the norm of a weight after the first round from
the first row's."""

_NETWORKS = ("simple_cnn", "simple_cnn_products")
_FLAGS = "--xla_gpu_enable_command_buffer=+WHILE,+CONDITIONAL --xla_gpu_graph_min_graph_size=1"
_AT_A_TIME = (1, 4)
_CASE = {"precision": "float32", "compile": "client"}


def run(plan: measure.Plan) -> Section:
    """Measures what the file lacks, until the time is over."""
    if not can_measure(plan):
        return unmeasured(_TITLE)
    ledger = Ledger(plan, "gpu_graphs")
    numbers = _AT_A_TIME[:1] if plan.quick else _AT_A_TIME
    for at_a_time, loops, model in itertools.product(numbers, ("no", "yes"), _NETWORKS):
        about = {"model": model, "loops": loops, "at_a_time": at_a_time}
        name = ", ".join(map(str, about.values()))
        if not ledger.lacks(name):
            continue
        program = functools.partial(_program, about, plan)
        for _, found in children.measured_in_turn(program, [_CASE], ledger, PATIENCE):
            ledger.record(name, {**about, **found})
    return section(ledger)


def _program(
    about: Mapping[str, Any], plan: measure.Plan, cases: Sequence[children.Case]
) -> children.Program:
    """The command and the environment that measure a network."""
    first = (QUICK if plan.quick else WORKLOADS)[0]
    workload = dataclasses.replace(first, model=about["model"])
    texts = map(json.dumps, (dataclasses.asdict(workload), about["at_a_time"]))
    command, environment = children.own(
        "benchmarks.gpu.speed_case", *texts, str(int(plan.quick)), json.dumps(list(cases))
    )
    if about["loops"] == "yes":
        given = environment.get("XLA_FLAGS", "")
        environment["XLA_FLAGS"] = f"{given} {_FLAGS}".strip()
    return command, environment


def section(measured: Measurements) -> Section:
    """The table of all cases."""
    columns = {
        "network": "model",
        "loops": "loops",
        "clients at a time": "at_a_time",
        "samples per second": "samples_per_second",
        "first round (s)": "first_round",
        "deviation": "deviation",
        "": "note",
    }
    cases = list(measured.cases.values())
    rows = [{**case, "deviation": deviation(case, cases[0])} for case in cases]
    workload = (QUICK if measured.made_with["quick"] else WORKLOADS)[0]
    text = _TEXT.format(made_with=measured.text(), workload=workload, flags=f'"{_FLAGS}"')
    return Section(_TITLE, text, [Table("Graphs", columns, rows)])
