"""Section `peers`: the same rounds in PyTorch, Flower, pfl-research and FedJAX.

Other sections that compare this project with other software use `measure_workload`, `COLUMNS` and
`targets_of` as well.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import statistics
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks import abilities, measure, processes
from benchmarks.contenders import Contender, ContenderError
from benchmarks.report import Section, Table, Target
from tff_pcdd import machine
from tff_pcdd.errors import SettingError

if TYPE_CHECKING:
    from benchmarks.workloads import Workload

_TEXT = """\
The same FedAvg rounds in other software, with all clients of the workloads in every round: the same
samples in the same order, initial weights, network, batches, epochs and optimizer (SGD with
momentum, coupled weight decay and clipping by the global norm). Each contender has a process of its
own with all cores, and is stopped while another one is measured; peers have environments of their
own (`make install-peers`; their programs are in the folder `peers`).

- `inprocess`: this project, with its default settings (on two cores, two clients at a time).
- `plain`: the plain TensorFlow loop of section `runtimes`; it shuffles by itself (no deviation).
- `pytorch`: a plain PyTorch loop in the manner of PFLlib: DataLoader, `torch.optim.SGD`, the
  clients one after the other; in PyTorch's default layout, and with `channels_last`. The targets
  take the faster one.
- `flower`: Flower's simulation with the same PyTorch training (`channels_last`), in one Ray worker
  with one thread for each core.
- `pfl`: pfl-research with the same PyTorch network (`channels_last`), in one process.
- `fedjax`: FedJAX with the same network in JAX, in one process.

In bfloat16, PyTorch's programs train under `torch.autocast`; FedJAX has no such option.

*Deviation* says whether the work is the same: the distance of the weights after the first round
from those of `inprocess`, over the distance that those have moved (Euclidean norms over all trained
weights). With ResNet18, rounding is amplified: multiplying all initial weights of `inprocess` by 1
± 1e-7 gives a deviation of 0.016 after one round, as much as other software has. In bfloat16, which
has 8 significant bits, rounding errors are larger.

Seconds are medians of {repeats} rounds after two that are not counted; the contenders take turns,
and a ratio is the median of the ratios within a repeat. Memory is the most that a process and its
descendants (for `flower`, these include Ray) use in a further round, read from outside
(proportional set size). With ResNet18, this project and PyTorch spend most of their time in
oneDNN's convolutions, so their ratios are close to 1, and vary by up to a tenth between runs."""

_WITHOUT_BFLOAT16 = "\n\nbfloat16 is left out: {reason}."

_NOT_INSTALLED = "not measured: not installed; run `make install-peers`"

_PROGRAMS = processes.ROOT / "peers"
# The environments of the peers, see `make install-peers`.
ENVIRONMENTS = {
    name: processes.ROOT / f".venv-peers-{name}" / "bin" / "python"
    for name in ("torch", "jax", "blazefl")
}


@dataclasses.dataclass(frozen=True)
class Peer:
    """A program in another environment.

    Attributes:
        environment: name of the environment.
        program: file in the folder `peers`.
        precisions: those that it offers.
        arguments: further arguments.
    """

    environment: str
    program: str
    precisions: tuple[str, ...] = ("float32", "bfloat16")
    arguments: tuple[str, ...] = ()


PEERS = {
    "pytorch": Peer("torch", "pytorch.py", ("float32",), ("contiguous",)),
    "pytorch, channels_last": Peer("torch", "pytorch.py", arguments=("channels_last",)),
    "flower": Peer("torch", "flower.py"),
    "pfl": Peer("torch", "pfl_research.py"),
    "fedjax": Peer("jax", "fedjax_program.py", ("float32",)),
}

_OWN = "inprocess"
# The lower bounds on the ratio of speeds: over the PyTorch loop by model, and over the rest.
_LOOP_LIMITS = {"simple_cnn": 1.5, "resnet18": 1.0}
_LIMIT = 1.0
# The rounds before those that count: one whose weights are compared, and the first of `alternate`.
_WARM_UP = 2


def check_installed() -> None:
    """Checks that some peer can be measured.

    Raises:
        SettingError: none of the environments is installed.
    """
    if not any(ENVIRONMENTS[peer.environment].exists() for peer in PEERS.values()):
        raise SettingError("peers", None, "no environment of a peer exists; run make install-peers")


def run(plan: measure.Plan) -> Section:
    """Measures all workloads in all precisions that this machine is fast in; if quick, in one."""
    from benchmarks.workloads import QUICK_WORKLOADS, WORKLOADS

    slow = machine.slow_bfloat16()
    text = _TEXT.format(repeats=plan.repeats)
    if slow is not None:
        text += _WITHOUT_BFLOAT16.format(reason=slow)
    tables, targets = [], []
    precisions = measure.PRECISIONS if slow is None else measure.PRECISIONS[:1]
    for workload in QUICK_WORKLOADS if plan.quick else WORKLOADS:
        limits = {_group(name): _LIMIT for name in PEERS}
        limits |= {"pytorch": _LOOP_LIMITS[workload.model]}
        for precision in precisions[-1:] if plan.quick else precisions:
            label = f"{workload.model}, {precision}"
            rows = measure_workload(workload, precision, plan, PEERS, label=f"peers: {label}")
            tables.append(Table(f"{workload}, {precision}", COLUMNS, rows))
            targets += targets_of(label, rows, limits)
    columns = {name: name for name in abilities.COLUMNS}
    rows = [dict(zip(abilities.COLUMNS, row, strict=True)) for row in abilities.ROWS]
    tables.append(Table("What else they do", columns, rows))
    return Section("Peers", text, tables, targets)


COLUMNS = {
    "contender": "contender",
    "seconds a round": "median",
    "time / inprocess'": "ratio",
    "memory (MB)": "memory_mb",
    "deviation": "deviation",
    "version": "version",
    "": "note",
}


def measure_workload(
    workload: Workload,
    precision: str,
    plan: measure.Plan,
    peers: Mapping[str, Peer],
    *,
    own: Sequence[str] = (_OWN, "plain"),
    label: str,
) -> list[dict[str, Any]]:
    """A row for each contender.

    Args:
        workload: the work of a round.
        precision: "float32" or "bfloat16".
        plan: how much is measured.
        peers: by name; those that lack the precision are left out.
        own: the contenders of `peer_work`; the first one is what the others are compared with.
        label: prefix of the progress lines on stderr.
    """
    from benchmarks import peer_work

    notes: dict[str, str] = {}
    with contextlib.ExitStack() as stack:
        path = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "work.npz"
        peer_work.write(workload, plan.repeats + _WARM_UP + 1, path)
        with np.load(path) as file:
            initial = {
                name.removeprefix("weights/"): file[name]
                for name in file.files
                if name.startswith("weights/")
            }
        running, deviations = {}, {}
        reference: Mapping[str, np.ndarray] = {}
        commands = _own_commands(workload, precision, own)
        commands |= _peer_commands(peers, precision, path, notes)
        for name, command in commands.items():
            measure.note(f"{label}: {name}, first round")
            contender = stack.enter_context(Contender(command))
            try:
                contender.wait_until_ready()
                contender.next()
                weights = contender.weights()
            except ContenderError as error:
                if name == own[0]:
                    raise
                notes[name] = f"failed: {error}"
                continue
            reference = reference or weights
            deviations[name] = deviation(weights, reference, initial) if weights else None
            running[name] = contender
        calls = {name: contender.next for name, contender in running.items()}
        seconds = measure.alternate(calls, plan.repeats, label)
        rows: list[dict[str, Any]] = [
            {
                "contender": name,
                "seconds": seconds[name],
                "median": statistics.median(seconds[name]),
                "ratio": measure.paired_ratio(seconds[name], seconds[own[0]]),
                "memory_mb": contender.peak_memory(),
                "deviation": deviations[name],
                "version": ", ".join(f"{k} {v}" for k, v in contender.versions.items()),
            }
            for name, contender in running.items()
        ]
    return rows + [{"contender": name, "note": note} for name, note in notes.items()]


def _own_commands(
    workload: Workload, precision: str, names: Sequence[str]
) -> dict[str, Sequence[str]]:
    program = (sys.executable, "-m", "benchmarks.peer_work")
    fields = json.dumps(dataclasses.asdict(workload))
    return {name: (*program, fields, name, precision) for name in names}


def _peer_commands(
    peers: Mapping[str, Peer], precision: str, path: Path, notes: dict[str, str]
) -> dict[str, Sequence[str]]:
    """The commands of the peers that can run; those that are not installed get a note."""
    commands: dict[str, Sequence[str]] = {}
    for name, peer in peers.items():
        python = ENVIRONMENTS[peer.environment]
        if precision not in peer.precisions:
            continue
        if not python.exists():
            notes[name] = _NOT_INSTALLED
            continue
        program = str(_PROGRAMS / peer.program)
        commands[name] = (str(python), program, str(path), precision, *peer.arguments)
    return commands


def deviation(
    weights: Mapping[str, np.ndarray],
    own: Mapping[str, np.ndarray],
    initial: Mapping[str, np.ndarray],
) -> float:
    """Distance of the trained weights from this project's, over the distance that those moved.

    Args:
        weights: of a contender after a round, by name.
        own: this project's after the same round.
        initial: those before the round.
    """
    names = [name for name in initial if "/moving_" not in name]

    def norm(difference: Callable[[str], np.ndarray]) -> float:
        return float(np.sqrt(sum(np.sum(np.square(difference(name))) for name in names)))

    moved = norm(lambda name: own[name] - initial[name])
    return norm(lambda name: weights[name] - own[name]) / moved


def _group(contender: str) -> str:
    """What variants such as "pytorch" and "pytorch, channels_last" have in common."""
    return contender.partition(",")[0]


def targets_of(
    work: str, rows: Sequence[Mapping[str, Any]], limits: Mapping[str, float]
) -> list[Target]:
    """The targets of a table.

    Args:
        work: what is measured, in a few words.
        rows: of the table.
        limits: lower bounds on the speed of `inprocess` over that of a contender's fastest variant.
            A contender without a row has no target.
    """
    ratios: dict[str, list[float]] = {}
    for row in rows:
        found = ratios.setdefault(_group(row["contender"]), [])
        if "ratio" in row:
            found.append(row["ratio"])
    return [
        Target(
            f"speed of inprocess over {name}, {work}",
            min(ratios[name], default=None),
            limit,
            at_least=True,
        )
        for name, limit in limits.items()
        if name in ratios
    ]
