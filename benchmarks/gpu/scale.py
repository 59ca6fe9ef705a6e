"""Section `gpu_scale`: FedGELA's table 5 at its published scale, one run after the other."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import tarfile
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks import measure, processes
from benchmarks.gpu import children
from benchmarks.gpu.ledger import Ledger, can_measure, unmeasured
from benchmarks.report import Section, Table

_TITLE = "GPU: FedGELA's table 5"
_TEXT = """\
{made_with}

Runs of `tasks.train` with the settings of `flags/fedgela/table5_cifar10_p50c2.flags` and
`table5_cifar10_p10c2.flags`, one seed, `--precision={precision}`, ResNet18 with a projection of 84.
Accuracies are those after the last round, in percent; *published* are those of the paper. *Seconds*
are those of all rounds, without evaluations; *wall* are those of the processes, with everything
else: start, compilation, evaluations, checkpoints."""

_NOT_MEASURED = "not measured: --data_dir has to name the folder with CIFAR-10"

PRECISION = "tf32"
# As in flags/fedgela/common, where tasks.compare finds them.
COMMON = {
    "model": "resnet18",
    "local_epochs": "10",
    "batch_size": "100",
    "client_learning_rate": "0.01",
    "client_momentum": "0.9",
    "client_weight_decay": "1e-4",
    "client_clip_norm": "20",
    "dataset": "cifar10",
    "input_normalization": "dataset",
    "augmentation": "none",
    "projection_dim": "84",
    "partition": "class",
    "classes_per_client": "2",
    "clients_per_round": "10",
}
# How often is evaluated and saved, which changes no result.
_OFTEN = {"eval_every": "5", "personal_eval_every": "0", "checkpoint_every": "5"}
_FEDGELA = {"algorithm": "fedgela"}
_METHODS: Mapping[str, Mapping[str, str]] = {
    "fedavg": {"algorithm": "fedavg"},
    "fedgela, scale 1e5": {**_FEDGELA, "fedgela_scale": "100000"},
    "fedgela, scale 1": {**_FEDGELA, "fedgela_scale": "1"},
    "fedge, scale 1e5": {"algorithm": "fedge", "fedge_scale": "100000"},
    "fedgela, features bn": {**_FEDGELA, "fedgela_scale": "100000", "fedgela_features": "bn"},
}
# By the order of importance: partition and number of clients.
FEDERATIONS = {"P50C2": "50", "P10C2": "10"}
# Published PA and GA in percent, from flags/published/fedgela_table5.csv.
_PUBLISHED = "flags/published/fedgela_table5.csv"
_PUBLISHED_NAMES = {"fedavg": "FedAvg", "fedgela": "FedGELA"}
_TINY = {
    "model": "mlp", "dataset": "digits", "local_epochs": "1", "batch_size": "16", "rounds": "2",
    "max_train_samples": "500", "max_test_samples": "100",
}  # fmt: skip

# What has been computed of a run travels in pieces of this size.
_PIECE = 15 << 20
# Seconds that remain for packing a run.
_RESERVE = 20
CONTINUES = "continues in the next call"
# Columns of the curves that are kept.
_KEPT = ("round", "ga", "pa", "pa_before", "train_loss", "seconds")


def run(plan: measure.Plan) -> Section:
    """Computes runs, the most important ones first, until the time is over."""
    if not can_measure(plan):
        return unmeasured(_TITLE)
    if plan.data_dir is None and not plan.quick:
        return Section(_TITLE, "", [Table(_TITLE, {"": "note"}, [{"note": _NOT_MEASURED}])])
    ledger = Ledger(plan, "gpu_scale")
    for name, flags in runs(plan).items():
        earlier = ledger.cases.get(name, {})
        if earlier.get("note", CONTINUES) != CONTINUES or earlier.get("finished"):
            continue
        if ledger.left() <= _RESERVE:
            break
        measure.note(f"gpu_scale: {name}")
        start = time.perf_counter()
        found = _continue(flags, plan, ledger)
        found["wall"] = earlier.get("wall", 0) + time.perf_counter() - start
        ledger.record(name, found)
        if found.get("note") == CONTINUES:
            break
    rows = [_row(name, case) for name, case in ledger.cases.items()]
    columns = {
        "run": "run",
        "rounds": "rounds",
        "PA": "pa",
        "published PA": "published_pa",
        "PA before local epochs": "pa_before",
        "GA": "ga",
        "published GA": "published_ga",
        "seconds": "seconds",
        "wall": "wall",
        "": "note",
    }
    text = _TEXT.format(made_with=ledger.text(), precision=PRECISION)
    return Section(_TITLE, text, [Table(_TITLE, columns, rows)])


def runs(plan: measure.Plan) -> dict[str, dict[str, str]]:
    """The flags of all runs by name; two tiny ones if the plan is quick."""
    found = {}
    for federation, clients in FEDERATIONS.items():
        for method, own in _METHODS.items():
            flags = {**COMMON, "num_clients": clients, "rounds": "100", **own, **_OFTEN}
            flags |= {"precision": PRECISION, "data_dir": plan.data_dir or ""}
            if plan.quick:
                flags = {name: value for name, value in flags.items() if name not in _NOT_TINY}
                flags |= _TINY
            found[f"{federation}, {method}"] = flags
    return dict([*found.items()][:2]) if plan.quick else found


# Of CIFAR-10 only.
_NOT_TINY = ("data_dir", "input_normalization", "precision")


def _continue(flags: Mapping[str, str], plan: measure.Plan, ledger: Ledger) -> dict[str, Any]:
    """Continues a run until it ends or the time is over; returns its curves and its summary.

    Only one run is unfinished at a time, so the pieces are always those of this one.
    """
    assert plan.folder is not None
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        unpack(plan.folder, work)
        directory = work / "run"
        arguments = [f"--{flag}={value}" for flag, value in flags.items()]
        command, environment = children.own(
            "tasks.train", *arguments, "--noprogress", "--notensorboard", "--keep_checkpoints=1",
            f"--output_dir={directory}",
        )  # fmt: skip
        # Paths are signed with a secret that has to travel, too.
        environment["XDG_STATE_HOME"] = str(work / "state")
        note = _train(command, environment, ledger.left() - _RESERVE)
        found = _results(directory) | ({"note": note} if note else {})
        remove_pieces(plan.folder)
        if note == CONTINUES:
            pack(work, plan.folder)
    return found


def _train(command: Sequence[str], environment: Mapping[str, str], seconds: float) -> str:
    """Runs tasks.train for at most so many seconds; returns the error if there is one."""
    with tempfile.TemporaryFile("w+", errors="replace") as errors:
        process = subprocess.Popen(
            command,
            stdout=subprocess.DEVNULL,
            stderr=errors,
            env={**environment},
            cwd=processes.ROOT,
        )
        try:
            process.wait(max(seconds, 1))
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGTERM)
            process.wait()
            return CONTINUES
        errors.seek(0)
        lines = errors.read().strip().splitlines()
        return lines[-1][:300] if process.returncode and lines else ""


def _results(directory: Path) -> dict[str, Any]:
    """Curves and, at the end, accuracies of a run."""
    import csv

    curves: list[dict[str, float]] = []
    if (path := directory / "metrics.csv").exists():
        with open(path, newline="") as file:
            for row in csv.DictReader(file):
                curves.append({k: float(row[k]) for k in _KEPT if row.get(k)})
    summary = {}
    if (path := directory / "summary.json").exists():
        summary = json.loads(path.read_text())
    config = {}
    if (path := directory / "config.json").exists():
        config = json.loads(path.read_text())
    return {"finished": bool(summary), "curves": curves, "summary": summary, "config": config}


def _row(name: str, case: Mapping[str, Any]) -> dict[str, Any]:
    """A row of the table; accuracies only of a run that has ended."""
    curves = case["curves"]
    row = {"run": name, "rounds": int(curves[-1]["round"]) if curves else 0}
    row["seconds"] = sum(each.get("seconds", 0) for each in curves)
    row["wall"] = case["wall"]
    if case["finished"]:
        row |= {key: curves[-1][key] for key in ("pa", "pa_before", "ga") if key in curves[-1]}
    federation, _, method = name.partition(", ")
    row |= published(federation, method.partition(",")[0])
    return {**row, **({"note": case["note"]} if "note" in case else {})}


def published(federation: str, method: str) -> dict[str, float]:
    """The published accuracies of a method; empty if there are none."""
    import csv

    with open(processes.ROOT / _PUBLISHED, newline="") as file:
        return {
            f"published_{row['metric'].lower()}": float(row["value"])
            for row in csv.DictReader(file)
            if row["method"] == _PUBLISHED_NAMES.get(method)
            and row["dataset"] == "CIFAR10"
            and row["setting"].startswith(federation)
            and row["metric"] in ("PA", "GA")
        }


def pack(work: Path, folder: Path) -> None:
    """Writes a folder as pieces of an archive, which replace earlier ones."""
    start = time.perf_counter()
    archive = work.parent / f"{work.name}.tar"
    with tarfile.open(archive, "w") as tar:
        tar.add(work, ".")
    with open(archive, "rb") as file:
        for number, piece in enumerate(iter(lambda: file.read(_PIECE), b"")):
            (folder / f"gpu_scale.tar.{number:02d}").write_bytes(piece)
    os.remove(archive)
    measure.note(f"gpu_scale: packed in {time.perf_counter() - start:.1f} s")


def unpack(folder: Path, work: Path) -> None:
    """Restores what `pack` has written, if there is something."""
    pieces = sorted(folder.glob("gpu_scale.tar.*"))
    if not pieces:
        return
    archive = work.parent / f"{work.name}.tar"
    with open(archive, "wb") as file:
        for piece in pieces:
            file.write(piece.read_bytes())
    with tarfile.open(archive) as tar:
        tar.extractall(work, filter="data")
    os.remove(archive)


def remove_pieces(folder: Path) -> None:
    """Deletes what `pack` has written."""
    for piece in folder.glob("gpu_scale.tar.*"):
        piece.unlink()
