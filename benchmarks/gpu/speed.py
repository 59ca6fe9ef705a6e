"""Section `gpu_speed`: samples per second on a GPU, beside a PyTorch loop of the same work."""

from __future__ import annotations

import dataclasses
import functools
import json
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks import measure, peer_work, processes
from benchmarks.gpu import children
from benchmarks.gpu.ledger import Ledger, Measurements, can_measure, unmeasured
from benchmarks.gpu.speed_case import ROUNDS
from benchmarks.report import Section, Table, Target
from benchmarks.workloads import Workload
from tff_pcdd import machine

_TITLE = "GPU: speed"
_TEXT = """\
{made_with}

Rounds of FedAvg on one GPU: {workloads}. Images and texts are random. A round includes what the
server does. Samples per second are of the median of {rounds} rounds after two that are not counted;
*first round* includes tracing and compiling.

- This project: `--compile` and `--precision` as the columns say, so many *clients at a time*
  (`--clients_per_gpu`).
- PyTorch: a loop over the clients with their samples on the GPU, as a process of its own on the
  same card (`peers/torch_gpu.py`): `eager`; `channels_last`; `compile`, which is `torch.compile`
  with `channels_last`. In bfloat16, under `torch.autocast`.

*Of the peak* is the rate of the floating-point operations in products and convolutions over the
higher one of a large matrix product and a large convolution of TensorFlow in the same precision.
Memory is the most that the framework has used on the GPU. *Deviation* is the largest relative
difference of the norm of a weight after the first round from this project's in float32 with one
client at a time: it says whether the work is the same. WRN-28-10 has none: its dropout differs.

*Clients at a time* has the fastest `--clients_per_gpu` of those that were measured with
`--compile=client`."""

# Batches fill the samples, so that no step is on a smaller batch.
WORKLOADS = (
    Workload("simple_cnn", 16, 640, 32, 2),
    Workload("resnet18", 4, 1280, 128, 1),
    Workload("wide_resnet", 2, 512, 128, 1),
    Workload("lstm", 4, 1024, 64, 1),
)
QUICK = (Workload("simple_cnn", 2, 8, 4, 1),)

_PRECISIONS = ("float32", "tf32", "bfloat16")
# What PyTorch is measured with: mode and precision.
_EAGER = (("eager", "float32"), ("channels_last", "tf32"), ("channels_last", "bfloat16"))
_COMPILED = (("compile", "tf32"), ("compile", "bfloat16"), ("compile", "float32"))


def _in_all(compile: str) -> tuple[tuple[str, str], ...]:
    return tuple((compile, precision) for precision in _PRECISIONS)


# What is measured, in the order of importance: a network, the number of clients at a time (0 for
# PyTorch), and the cases of a program: --compile or PyTorch's mode, and the precision. A program
# needs half a minute before its first round. In the graphs of TFF, Keras' LSTM is not cuDNN's but
# ten thousand small operations, which are worth waiting for only in one program of XLA.
_STAGES: Sequence[tuple[str, int, Sequence[tuple[str, str]]]] = (
    ("simple_cnn", 1, (*_in_all("client"), ("off", "float32"))),
    ("simple_cnn", 0, _EAGER),
    ("simple_cnn", 4, _in_all("client")),
    ("resnet18", 1, _in_all("client")),
    ("resnet18", 0, _EAGER),
    ("simple_cnn", 0, _COMPILED),
    ("resnet18", 0, _COMPILED),
    ("resnet18", 4, _in_all("client")),
    ("lstm", 1, _in_all("client")),
    ("lstm", 0, (*_EAGER, *_COMPILED)),
    ("wide_resnet", 1, _in_all("client")),
    ("wide_resnet", 0, (*_EAGER, *_COMPILED)),
    ("resnet18", 1, (*_in_all("off"), *_in_all("step"))),
    ("simple_cnn", 1, (*_in_all("off")[1:], *_in_all("step"))),
    ("simple_cnn", 2, _in_all("client")),
    ("simple_cnn", 8, _in_all("client")),
    ("simple_cnn", 4, _in_all("off")),
    ("resnet18", 2, _in_all("client")),
    ("resnet18", 4, _in_all("off")),
    ("lstm", 4, _in_all("client")),
    ("wide_resnet", 1, _in_all("off")),
)
_QUICK_STAGES = (
    ("simple_cnn", 1, _in_all("client")[:1]),
    ("simple_cnn", 0, _EAGER[:1]),
    ("simple_cnn", 4, _in_all("client")[:1]),
)
# What else is in the file: the card's own speed, and the fastest numbers of clients at a time.
_PEAK, _BEST = "peak", "clients_per_gpu"
_BEST_COLUMNS = {
    "network": "model",
    "precision": "precision",
    "fastest --clients_per_gpu": "at_a_time",
    "of": "measured",
    "samples per second": "samples_per_second",
    "over one at a time": "gain",
}
# Seconds after which a case is given up; compiling takes minutes.
PATIENCE = 240

# Lower bounds on the speed over PyTorch's, by mode.
_LIMITS = {"eager": 2.0, "compile": 1.0}
_LIMIT_OF_SMALL = 5.0


@dataclasses.dataclass(frozen=True)
class Batch:
    """Cases of one program.

    Attributes:
        workload: what is trained.
        at_a_time: clients that train at the same time; 0 for PyTorch.
        cases: the program's cases.
    """

    workload: Workload
    at_a_time: int
    cases: Sequence[Mapping[str, str]]

    def key(self, case: Mapping[str, str]) -> str:
        """The name of a case in the file."""
        own = f"{self.at_a_time} at a time" if self.at_a_time else "pytorch"
        return ", ".join([self.workload.model, own, *case.values()])


def run(plan: measure.Plan) -> Section:
    """Measures what the file lacks, in the order of importance, until the time is over."""
    if not can_measure(plan):
        return unmeasured(_TITLE)
    ledger = Ledger(plan, "gpu_speed")
    if ledger.lacks(_PEAK):
        program = functools.partial(_peak_program, plan)
        for _, found in children.measured_in_turn(program, [{}], ledger, PATIENCE):
            ledger.record(_PEAK, found)
    workloads = QUICK if plan.quick else WORKLOADS
    with tempfile.TemporaryDirectory() as folder:
        for batch in _batches(workloads, plan):
            missing = [case for case in batch.cases if ledger.lacks(batch.key(case))]
            if not missing or not ledger.left():
                continue
            measure.note(f"gpu_speed: {batch.key(missing[0])} and {len(missing) - 1} more")
            trains = functools.partial(_program, batch, plan, Path(folder))
            measured = children.measured_in_turn(trains, missing, ledger, PATIENCE)
            for case, found in measured:
                about = {"model": batch.workload.model, "at_a_time": batch.at_a_time, **case}
                ledger.record(batch.key(case), {**about, **found})
    best = clients_per_gpu(ledger.cases)
    for row in best:
        text = "gpu_speed: the fastest for {model} in {precision} is --clients_per_gpu={at_a_time}"
        measure.note(text.format_map(row))
    ledger.record(_BEST, best)
    return section(ledger)


def clients_per_gpu(cases: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The fastest number of clients at a time of each network and precision.

    Only `--compile=client` counts, the default on GPUs, and only where several numbers were
    measured.

    Args:
        cases: the measurements by name.

    Returns:
        For each network and precision `model`, `precision`, the fastest number `at_a_time` with its
        `samples_per_second`, the numbers that were `measured`, and the `gain`: the speed over that
        of one client at a time.
    """
    speeds: dict[tuple[str, str], dict[int, float]] = {}
    for name, case in cases.items():
        if name in (_PEAK, _BEST) or case.get("compile") != "client" or "note" in case:
            continue
        numbers = speeds.setdefault((case["model"], case["precision"]), {})
        numbers[case["at_a_time"]] = case["samples_per_second"]
    found = []
    for (model, precision), numbers in speeds.items():
        if 1 not in numbers or len(numbers) == 1:
            continue
        best = max(numbers, key=numbers.__getitem__)
        found.append(
            {
                "model": model,
                "precision": precision,
                "at_a_time": best,
                "samples_per_second": numbers[best],
                "measured": ", ".join(map(str, sorted(numbers))),
                "gain": numbers[best] / numbers[1],
            }
        )
    return found


def _batches(workloads: Sequence[Workload], plan: measure.Plan) -> Iterator[Batch]:
    """All cases, the most important ones first."""
    by_model = {workload.model: workload for workload in workloads}
    for model, at_a_time, cases in _QUICK_STAGES if plan.quick else _STAGES:
        if at_a_time:
            own = [{"precision": precision, "compile": compile} for compile, precision in cases]
            yield Batch(by_model[model], at_a_time, own)
        elif plan.torch_python is not None:
            theirs = [{"mode": mode, "precision": precision} for mode, precision in cases]
            yield Batch(by_model[model], 0, theirs)


def _peak_program(plan: measure.Plan, _: Sequence[children.Case]) -> children.Program:
    return children.own("benchmarks.gpu.card_peak", str(int(plan.quick)))


def _program(
    batch: Batch, plan: measure.Plan, folder: Path, cases: Sequence[children.Case]
) -> children.Program:
    """The command and the environment that measure cases of a batch."""
    workload, as_json = batch.workload, json.dumps(list(cases))
    if batch.at_a_time:
        fields = json.dumps(dataclasses.asdict(workload))
        arguments = [fields, str(batch.at_a_time), str(int(plan.quick)), as_json]
        return children.own("benchmarks.gpu.speed_case", *arguments)
    path = folder / f"{workload.model}.npz"
    if not path.exists():
        peer_work.write(workload, ROUNDS + 2, path)
    rounds = 1 if plan.quick else ROUNDS
    arguments = [str(path), "cuda" if machine.has_gpu() else "cpu", str(rounds), as_json]
    assert plan.torch_python is not None
    return children.other(plan.torch_python, str(processes.ROOT / "peers/torch_gpu.py"), *arguments)


def section(measured: Measurements) -> Section:
    """Tables of all networks, and the targets."""
    workloads = QUICK if measured.made_with["quick"] else WORKLOADS
    columns = {
        "program": "program",
        "precision": "precision",
        "clients at a time": "at_a_time",
        "samples per second": "samples_per_second",
        "of the peak": "of_peak",
        "memory (MB)": "memory_mb",
        "first round (s)": "first_round",
        "deviation": "deviation",
        "": "note",
    }
    fastest = Table("Clients at a time", _BEST_COLUMNS, measured.cases[_BEST])
    tables, targets = [_peak_table(measured.cases.get(_PEAK, {})), fastest], []
    for workload in workloads:
        rows = [
            _row(case, measured.cases)
            for name, case in measured.cases.items()
            if name.startswith(f"{workload.model}, ")
        ]
        tables.append(Table(str(workload), columns, rows))
        targets += _targets(workload.model, rows)
    text = _TEXT.format(
        made_with=measured.text(), workloads="; ".join(map(str, workloads)), rounds=ROUNDS
    )
    return Section(_TITLE, text, tables, targets)


def _peak_table(peaks: Mapping[str, float]) -> Table:
    rows = [
        {"precision": name, **{kind: peaks.get(f"{kind}_{name}", 0) / 1e12 for kind in _KINDS}}
        for name in _PRECISIONS
    ]
    columns = {"precision": "precision", **{f"{kind} (TFLOP/s)": kind for kind in _KINDS}}
    return Table("Peak", columns, rows)


_KINDS = ("matmul", "conv")


def _row(case: Mapping[str, Any], cases: Mapping[str, Any]) -> dict[str, Any]:
    """A row of a network's table."""
    is_own = bool(case["at_a_time"])
    own, mode = f"compile={case.get('compile')}", f"PyTorch, {case.get('mode')}"
    row = {**case, "program": own if is_own else mode, "at_a_time": case["at_a_time"] or 1}
    first = cases.get(f"{case['model']}, 1 at a time, float32, client", {})
    flops = first.get("flops", 0) / first.get("samples_per_second", 1)
    peak = max(cases.get(_PEAK, {}).get(f"{kind}_{case['precision']}", 0) for kind in _KINDS)
    if peak and "samples_per_second" in case:
        row["of_peak"] = flops * case["samples_per_second"] / peak
    if case["model"] != "wide_resnet":
        row["deviation"] = deviation(case, first)
    return row


def deviation(case: Mapping[str, Any], first: Mapping[str, Any]) -> float | None:
    """The largest relative difference of a norm of a case from another one; None without norms."""
    if "norms" not in case or "norms" not in first:
        return None
    pairs = [(norm, case["norms"][name]) for name, norm in first["norms"].items()]
    return max(abs(a - b) / max(a, 1e-6) for a, b in pairs)


def _targets(model: str, rows: Sequence[Mapping[str, Any]]) -> list[Target]:
    """The best of this project over PyTorch, by mode and precision."""
    found = []
    for row in rows:
        mode = row.get("mode", "")
        if not mode or "samples_per_second" not in row:
            continue
        own = [
            each["samples_per_second"]
            for each in rows
            if "mode" not in each
            and each["precision"] == row["precision"]
            and "samples_per_second" in each
        ]
        limit = _LIMITS["compile" if mode == "compile" else "eager"]
        if model == "simple_cnn" and mode != "compile":
            limit = _LIMIT_OF_SMALL
        ratio = max(own) / row["samples_per_second"] if own else None
        text = f"speed over PyTorch, {mode}, {model}, {row['precision']}"
        found.append(Target(text, ratio, limit, at_least=True))
    return found
