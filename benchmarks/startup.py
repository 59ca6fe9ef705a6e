"""Section `startup`: time until the end of the first round, and peak memory."""

from __future__ import annotations

import contextlib
import statistics
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence

from benchmarks import measure, processes
from benchmarks.report import Section, Table, Target
from tff_pcdd.runtime import launcher

# Lines that `first_round` prints: the first after each round; after the second, it waits.
FIRST_ROUND = "first round finished"
LAST_LINE = "the command ends"

_TEXT = """\
`tasks.train --rounds=1` on digits, with ten clients and five local epochs: seconds from the start
of the process to the end of the first round, and to the end of the command (which also evaluates,
draws and saves). Memory is the peak of the process over the whole command, and the sum of the peaks
of its workers up to the end of the first round, both read from outside (/proc/PID/status); those of
`ray` are two actors and Ray itself.

`plain` is a plain TensorFlow program (`benchmarks.plain_program`) in a process of its own
that imports TensorFlow, loads the same samples of the same clients, makes the same network, traces
the training of a client, computes a round of FedAvg with the same local steps over the ten clients,
one after the other, and evaluates the global model once. It does not import TFF. It neither trains
and evaluates a personal model for each client, nor saves settings, measurements, a checkpoint or
predictions, nor draws pictures or writes a report: `tasks.train` does all of this before it ends.

Values are medians of {repeats} runs; the contenders take turns. Ratios are medians of the ratios
within a repeat."""

PLAIN = "plain"
_RUNTIMES = ("inprocess", "tff", "ray")
_MOST_REPEATS = 3
# By measurement: its name, and the upper bound on its ratio to that of the plain program.
_TARGETS = {
    "first_round_seconds": ("end of the first round of inprocess over plain", 1.4),
    "seconds": ("whole command of inprocess over plain", 1.8),
}
_TINY = ["--max_train_samples=100", "--max_test_samples=100", "--local_epochs=1"]


def run(plan: measure.Plan) -> Section:
    """Measures the plain program and every runtime; only the default one if the plan is quick."""
    runtimes = [*(_RUNTIMES[:1] if plan.quick else _RUNTIMES)]
    if "tff" in runtimes and not launcher.can_isolate():
        runtimes.remove("tff")
    if "ray" in runtimes and not processes.has_ray():
        runtimes.remove("ray")
    repeats = 1 if plan.quick else min(plan.repeats, _MOST_REPEATS)
    runs: dict[str, list[dict]] = {contender: [] for contender in (PLAIN, *runtimes)}
    for repeat in range(repeats):
        for contender in runs:
            measure.note(f"startup: {contender}, {repeat + 1} of {repeats}")
            runs[contender].append(_run_contender(contender, plan.quick))
    rows = [
        {
            "contender": contender,
            **{key: statistics.median(run[key] for run in its_runs) for key in its_runs[0]},
            **{f"{key}_ratio": _ratio(runs, contender, key) for key in _TARGETS},
            "runs": its_runs,
        }
        for contender, its_runs in runs.items()
    ]
    targets = [
        Target(text, _ratio(runs, _RUNTIMES[0], key), limit)
        for key, (text, limit) in _TARGETS.items()
    ]
    columns = {
        "contender": "contender",
        "first round (s)": "first_round_seconds",
        "first round / plain's": "first_round_seconds_ratio",
        "whole command (s)": "seconds",
        "whole command / plain's": "seconds_ratio",
        "process (MB)": "memory_mb",
        "workers (MB)": "workers_memory_mb",
    }
    table = Table("Start-up", columns, rows)
    return Section("Start-up and memory", _TEXT.format(repeats=repeats), [table], targets)


def _ratio(runs: Mapping[str, Sequence[Mapping[str, float]]], contender: str, key: str) -> float:
    """A measurement of a contender, over that of the plain program in the same repeat."""
    own, plain = ([run[key] for run in runs[name]] for name in (contender, PLAIN))
    return measure.paired_ratio(own, plain)


def _run_contender(contender: str, quick: bool) -> dict[str, float]:
    """Runs tasks.train on a runtime, or the plain program, once; returns the measurements."""
    with contextlib.ExitStack() as stack:
        if contender == PLAIN:
            module, arguments = "benchmarks.plain_program", []
        else:
            module = "benchmarks.first_round"
            directory = stack.enter_context(tempfile.TemporaryDirectory())
            arguments = ["--rounds=1", f"--runtime={contender}", "--noprogress"]
            arguments += [f"--output_dir={directory}"]
        if quick:
            arguments += _TINY
        if contender == "ray":
            arguments.append("--ray_actors=2")
        start = time.perf_counter()
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        process = processes.start_module(module, *arguments, **pipes)
        first_round = memory = None
        output = processes.standard_output(process)
        for line in output:
            if line.strip() == FIRST_ROUND:
                first_round = time.perf_counter() - start
                pids = processes.children(process.pid)
                workers_memory = sum(map(processes.peak_memory, pids))
            elif line.strip() == LAST_LINE:
                memory = processes.peak_memory(process.pid)
                assert process.stdin is not None
                process.stdin.close()
        process.wait()
        seconds = time.perf_counter() - start
        output.close()
    if process.returncode or first_round is None or memory is None:
        raise RuntimeError(f"start-up of {contender} exited with {process.returncode}")
    return {
        "first_round_seconds": first_round,
        "seconds": seconds,
        "memory_mb": memory,
        "workers_memory_mb": workers_memory,
    }
