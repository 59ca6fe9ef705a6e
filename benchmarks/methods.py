"""Section `methods`: round time of every method relative to FedAvg with the same network."""

from __future__ import annotations

import statistics

import tensorflow_federated as tff

from benchmarks import measure
from benchmarks.report import Section, Table, Target
from benchmarks.workloads import Rounds, Workload
from tff_pcdd import federated, methods
from tff_pcdd.runtime import inprocess

_TEXT = """\
A round of each method alternates with a round of FedAvg that has the same projection in front of
its head (*projection*: the width of this dense layer), on the runtime `inprocess`, with the
method's default settings. Workload: {workload}. The first round is not counted, so FedMR has its
prototypes. Seconds are medians of {rounds} rounds; a ratio is the median of the ratios of two
rounds that follow each other.

FedRep does not backpropagate through the backbone in the epochs of its head. APFL and Ditto train
two models. pFedMe takes five gradient steps for each batch, and FedSOL computes two gradients. MOON
passes every batch through two more networks, without gradients, and FedNTD and FedVLS through one.
FedMR, and other methods with its prototypes, pass the client's samples forward once more. The
servers of CCVR and CReFF train a head in every round, that of FedGen a generator, and that of Ratio
Loss trains the model on samples of each class. With rounds as short as these, a server's work
counts for much: it does not grow with the clients' samples or epochs."""

_WORKLOAD = Workload("simple_cnn", 4, 320, 64, 2)
_QUICK_WORKLOAD = Workload("simple_cnn", 2, 16, 8, 1)

# A round takes only a fraction of a second, so more of them are needed for a stable median.
_ROUNDS_PER_REPEAT = 3

_LIMITS = {
    "fedge": 1.05,
    "fedgela": 1.05,
    "fedprox": 1.10,
    "fedrod": 1.15,
    "fedmr": 1.20,
    "fedloge": 1.20,
    "moon": 2.2,
    "ditto": 2.2,
}


def run(plan: measure.Plan) -> Section:
    """Measures every federated method except FedAvg; only one method if the plan is quick."""
    names = [n for n in methods.names() if n != "fedavg" and not methods.get(n).baseline]
    names = ["fedmr"] if plan.quick else names
    workload = _QUICK_WORKLOAD if plan.quick else _WORKLOAD
    repeats = plan.repeats if plan.quick else plan.repeats * _ROUNDS_PER_REPEAT
    context, previous = inprocess.create_context(), tff.framework.get_context_stack().current
    tff.framework.set_default_context(context)
    try:
        rows = _measure(names, workload, repeats)
    finally:
        tff.framework.set_default_context(previous)
        context.close()
    measured = {row["method"]: row["ratio"] for row in rows if "ratio" in row}
    targets = [
        Target(f"round time of {name} over FedAvg's", measured.get(name), limit)
        for name, limit in _LIMITS.items()
        if name in names
    ]
    columns = {
        "method": "method",
        "seconds a round": "median",
        "seconds of FedAvg's": "fedavg_median",
        "ratio": "ratio",
        "projection": "projection_dim",
        "": "note",
    }
    picture = ("round time over FedAvg's", measured, 1.0)
    table = Table("Methods", columns, rows)
    text = _TEXT.format(workload=workload, rounds=repeats)
    return Section("Methods", text, [table], targets, picture)


def _measure(names, workload, repeats) -> list[dict]:
    fedavg = {}
    rows = []
    for number, name in enumerate(names, 1):
        measure.note(f"methods: {name}, {number} of {len(names)}")
        width = methods.get(name).projection_dim
        if width not in fedavg:
            fedavg[width] = _rounds(workload, "fedavg", width)
        row = {"method": name, "projection_dim": width or "none"}
        rows.append(row)
        try:
            contenders = {"fedavg": fedavg[width], name: _rounds(workload, name, width)}
            seconds = measure.alternate(contenders, repeats)
        # If one method fails, the others are still measured.
        except Exception as error:
            row["note"] = f"failed: {error}".splitlines()[0]
            measure.note(f"methods: {name} {row['note']}")
            continue
        row.update(
            seconds=seconds[name],
            fedavg_seconds=seconds["fedavg"],
            median=statistics.median(seconds[name]),
            fedavg_median=statistics.median(seconds["fedavg"]),
            ratio=measure.paired_ratio(seconds[name], seconds["fedavg"]),
        )
    return rows


def _rounds(workload: Workload, algorithm: str, projection_dim: int):
    spec, clients = workload.build(algorithm, projection_dim=projection_dim)
    return Rounds(federated.build_process(spec), clients).next
