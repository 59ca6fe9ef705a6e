"""Section `studies`: a comparison with one and with two runs at a time."""

from __future__ import annotations

import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks import measure, processes
from benchmarks.report import Section, Table, Target
from tff_pcdd.training.file_names import CLIENTS

_TEXT = """\
`tasks.compare` on digits with {runs} runs (`--rounds={rounds}`): one run after the other, and two
at a time in processes of their own (`--parallel_runs=2`). Unless `--quick` is given, the runs are
those of flags/demo.flags. Each command is measured once, from its start to its end. The last column
says whether the accuracies of every client are equal to the last digit."""

_QUICK_SIZE = (
    *("--algorithms=fedavg", "--seeds=0,1", "--rounds=1", "--local_epochs=1", "--noreport"),
    *("--max_train_samples=100", "--max_test_samples=100", "--notensorboard"),
)
_LIMIT = 0.75


def run(plan: measure.Plan) -> Section:
    """Runs the comparison twice."""
    runs, rounds = (2, 1) if plan.quick else (9, 30)
    text = _TEXT.format(runs=runs, rounds=rounds)
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        results = []
        for number in (1, 2):
            measure.note(f"studies: {number} at a time")
            directory = Path(folder) / str(number)
            seconds = _compare(directory, number, _QUICK_SIZE if plan.quick else ())
            results.append((directory / CLIENTS).read_text())
            rows.append(
                {
                    "runs": number,
                    "seconds": seconds,
                    "ratio": seconds / rows[0]["seconds"] if rows else 1.0,
                    "equal": "yes" if results[-1] == results[0] else "no",
                }
            )
    columns = {
        "runs at a time": "runs",
        "seconds": "seconds",
        "ratio": "ratio",
        "equal accuracies": "equal",
    }
    target = Target("seconds of a comparison with two runs at a time", rows[-1]["ratio"], _LIMIT)
    return Section("Studies", text, [Table("Studies", columns, rows)], [target])


def _compare(directory: Path, parallel_runs: int, size: tuple[str, ...]) -> float:
    """Runs a comparison, and returns its seconds."""
    start = time.perf_counter()
    process = processes.start_module(
        "tasks.compare",
        f"--flagfile={processes.ROOT / 'flags' / 'demo.flags'}",
        "--noprogress",
        *size,
        f"--parallel_runs={parallel_runs}",
        f"--output_dir={directory}",
        stdout=subprocess.DEVNULL,
    )
    if process.wait():
        raise RuntimeError(f"tasks.compare exited with {process.returncode}")
    return time.perf_counter() - start
