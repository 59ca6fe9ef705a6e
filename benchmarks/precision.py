"""Section `precision`: a FedAvg round whose backbone computes in float32, and one in bfloat16."""

from __future__ import annotations

import statistics

from benchmarks import measure
from benchmarks.report import Section, Table, Target
from benchmarks.workloads import QUICK_WORKLOADS, WORKLOADS, Rounds, Workload
from tff_pcdd import federated, machine, runtime

_TEXT = """\
A round of FedAvg on the runtime `inprocess`, with its default settings; weights and heads are
float32 in either case. The precisions take turns. Seconds are medians; a ratio is the median of the
ratios within a repeat."""

# The lower bound on the ratio of their speeds, by backbone.
_TARGETS = {"resnet18": 1.8}


def run(plan: measure.Plan) -> Section:
    """Measures all workloads, in bfloat16 only if this machine is fast in it."""
    slow = machine.slow_bfloat16()
    text = _TEXT if slow is None else f"{_TEXT}\n\nbfloat16 is left out: {slow}."
    tables, targets = [], []
    for workload in QUICK_WORKLOADS if plan.quick else WORKLOADS:
        precisions = measure.PRECISIONS if slow is None else measure.PRECISIONS[:1]
        seconds = _measure(workload, plan, precisions)
        rows = [_row(name, seconds) for name in seconds]
        columns = {
            "backbone computes in": "precision",
            "seconds a round": "median",
            "speed / float32's": "speed",
        }
        tables.append(Table(str(workload), columns, rows))
        if limit := _TARGETS.get(workload.model):
            name = f"speed of bfloat16 over float32, {workload.model}"
            value = rows[1]["speed"] if slow is None else None
            targets.append(Target(name, value, limit, at_least=True))
    return Section("Precision", text, tables, targets)


def _measure(workload: Workload, plan: measure.Plan, precisions) -> dict[str, list[float]]:
    """Seconds of the rounds, by precision."""
    with runtime.use("inprocess"):
        contenders = {}
        for precision in precisions:
            spec, clients = workload.build(precision=precision)
            contenders[precision] = Rounds(federated.build_process(spec), clients).next
        return measure.alternate(contenders, plan.repeats, f"precision: {workload.model}")


def _row(precision: str, seconds: dict[str, list[float]]) -> dict:
    return {
        "precision": precision,
        "seconds": seconds[precision],
        "median": statistics.median(seconds[precision]),
        "speed": measure.paired_ratio(seconds["float32"], seconds[precision]),
    }
