"""Section `gpu_scale`: runs of published tables at their published scale, one after the other."""

from __future__ import annotations

import csv
import fnmatch
import json
import os
import re
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
from benchmarks.gpu.ledger import Ledger, Measurements, can_measure, unmeasured
from benchmarks.report import Section, Table
from tff_pcdd.cli import flagfiles
from tff_pcdd.settings import describe
from tff_pcdd.training import ExperimentConfig

_TITLE = "GPU: published tables"
_TEXT = """\
{made_with}

Runs of `tasks.train` with the settings of the named files in `flags`, one seed,
`--precision={precision}`. Accuracies are those after the last round, in percent; *published* are
those of the paper. FedLoGe's PM is that of the personal models before local epochs; with *own
classes*, only the classes of a client can be predicted. *Seconds* are those of all rounds, without
evaluations; *wall* are those of the processes, with everything else: start, compilation,
evaluations, checkpoints."""

_NOT_MEASURED = "not measured: --data_dir has to name the folder with CIFAR-10"

PRECISION = "tf32"
# How often is evaluated and saved, which changes no result.
_OFTEN = {"eval_every": "5", "personal_eval_every": "0", "checkpoint_every": "5"}
_FEDAVG = {"fedavg": {"algorithm": "fedavg"}}
_FEDGELA = {"fedgela": {"algorithm": "fedgela"}}
_ABLATIONS = {
    "fedgela, scale 1": {"algorithm": "fedgela", "fedgela_scale": "1"},
    "fedge": {"algorithm": "fedge"},
    "fedgela, features bn": {"algorithm": "fedgela", "fedgela_features": "bn"},
}
_P50C2 = "fedgela/table5_cifar10_p50c2"
# By the order of importance: a flagfile, and by run what differs from it.
TABLES: Sequence[tuple[str, Mapping[str, Mapping[str, str]]]] = (
    (_P50C2, _FEDAVG | _FEDGELA),
    ("fedmr/table1_cifar10_p10c2", {"fedmr": {"algorithm": "fedmr"}, **_FEDAVG}),
    ("fedloge/table1_cifar10_if100_dir0.5", {"fedloge": {"algorithm": "fedloge"}, **_FEDAVG}),
    (_P50C2, _ABLATIONS),
    ("fedgela/table5_cifar10_p10c2", _FEDAVG | _FEDGELA | _ABLATIONS),
)
# What flagfiles say of comparisons only.
_OF_COMPARISONS = ("algorithms", "seeds")
# Columns of the report, by the metrics of flags/published.
_PUBLISHED = {
    "PA": "published_pa",
    "PM": "published_pm",
    "GA": "published_ga",
    "GM": "published_ga",
    "accuracy": "published_ga",
}
# Printed as fractions of 1.
_FRACTIONS = ("GM", "PM")
# Where a flagfile repeats published figures: their table, data set and setting.
_FIGURES = re.compile(r"# \[published \| (\S+) \| ([^|]+?) \| ([^|]+?)\]")
_TINY = {
    "model": "mlp", "dataset": "digits", "local_epochs": "1", "batch_size": "16", "rounds": "2",
    "max_train_samples": "500", "max_test_samples": "100", "augmentation": "none",
}  # fmt: skip
# Of CIFAR-10 only.
_NOT_TINY = ("data_dir", "input_normalization", "imbalance_factor", "precision")

# What has been computed of a run travels in pieces of this size.
_PIECE = 15 << 20
# Seconds that remain for packing a run.
_RESERVE = 20
CONTINUES = "continues in the next call"
# Columns of the curves that are kept.
_ACCURACIES = ("ga", "pa", "pa_before", "pa_before_masked")
_KEPT = ("round", *_ACCURACIES, "train_loss", "seconds")


def run(plan: measure.Plan) -> Section:
    """Computes runs, the most important ones first, until the time is over."""
    if not can_measure(plan):
        return unmeasured(_TITLE)
    if plan.data_dir is None and not plan.quick:
        return Section(_TITLE, "", [Table(_TITLE, {"": "note"}, [{"note": _NOT_MEASURED}])])
    ledger = Ledger(plan, "gpu_scale")
    for name, flags in runs(plan).items():
        earlier = ledger.cases.get(name, {})
        if earlier.get("finished"):
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
    return section(ledger)


def section(measured: Measurements) -> Section:
    """The runs beside the published figures."""
    rows = [_row(name, case) for name, case in measured.cases.items()]
    columns = {
        "run": "run",
        "rounds": "rounds",
        "PA": "pa",
        "published PA": "published_pa",
        "PA before local epochs": "pa_before",
        "own classes": "pa_before_masked",
        "published PM": "published_pm",
        "GA": "ga",
        "published GA": "published_ga",
        "seconds": "seconds",
        "wall": "wall",
        "": "note",
    }
    text = _TEXT.format(made_with=measured.text(), precision=PRECISION)
    return Section(_TITLE, text, [Table(_TITLE, columns, rows)])


def runs(plan: measure.Plan) -> dict[str, dict[str, str]]:
    """The flags of all runs by name; tiny ones, one of each paper, if the plan is quick."""
    found = {}
    for flagfile, methods in TABLES[:3] if plan.quick else TABLES:
        for method, own in [*methods.items()][:1] if plan.quick else methods.items():
            flags = {**settings(flagfile, own["algorithm"]), **own, **_OFTEN}
            flags |= {"precision": PRECISION, "data_dir": plan.data_dir or ""}
            if plan.quick:
                flags = {name: value for name, value in flags.items() if name not in _NOT_TINY}
                flags |= _TINY
            found[f"{flagfile}, {method}"] = flags
    return found


def settings(flagfile: str, algorithm: str) -> dict[str, str]:
    """The flags of a run by name, from a flagfile for comparisons; "" for a switch.

    Args:
        flagfile: its path in the folder `flags`, without the suffix.
        algorithm: the run's method; the settings of others are left out.
    """
    lines = flagfiles.expand([f"--flagfile={processes.ROOT / 'flags' / flagfile}.flags"])
    others = {
        setting.name
        for setting in describe(ExperimentConfig)
        if setting.chosen_by == "algorithm" and algorithm not in setting.applies_to
    }
    found = {}
    for name, _, value in (line.removeprefix("--").partition("=") for line in lines):
        if name not in _OF_COMPARISONS and name.removeprefix("no") not in others:
            found[name] = value
    return found


def _continue(flags: Mapping[str, str], plan: measure.Plan, ledger: Ledger) -> dict[str, Any]:
    """Continues a run until it ends or the time is over; returns its curves and its summary.

    Only one run is unfinished at a time, so the pieces are always those of this one.
    """
    assert plan.folder is not None
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        unpack(plan.folder, work)
        directory = work / "run"
        arguments = [f"--{flag}={value}" if value else f"--{flag}" for flag, value in flags.items()]
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
        row |= {key: curves[-1][key] for key in _ACCURACIES if key in curves[-1]}
    row |= published(*name.split(", ", 1))
    return {**row, **({"note": case["note"]} if "note" in case else {})}


def published(flagfile: str, method: str) -> dict[str, float]:
    """The published accuracies of a run in percent, by column; empty if there are none."""
    text = (processes.ROOT / f"flags/{flagfile}.flags").read_text()
    table, dataset, setting = _FIGURES.findall(text)[0]
    with open(processes.ROOT / f"flags/published/{table}.csv", newline="") as file:
        rows = [
            row
            for row in csv.DictReader(file)
            if row["method"].lower() == method
            and row["dataset"] == dataset
            and fnmatch.fnmatchcase(row["setting"], setting)
            and row["metric"] in _PUBLISHED
        ]
    factors = dict.fromkeys(_FRACTIONS, 100)
    return {
        _PUBLISHED[row["metric"]]: round(float(row["value"]) * factors.get(row["metric"], 1), 2)
        for row in rows
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
