"""Section `startup`: time until the end of the first round, and peak memory."""

from __future__ import annotations

import contextlib
import statistics
import subprocess
import tempfile
import time

from tff_pcdd.benchmarks import measure, processes
from tff_pcdd.benchmarks.report import Section, Table
from tff_pcdd.runtime import launcher

# Lines that `first_round` prints: the first after each round; a number follows the second.
FIRST_ROUND = "first round finished"
PEAK_MEMORY = "peak memory (MB):"

_TEXT = """\
`tasks.train --rounds=1` on digits, with ten clients and five local epochs: seconds from the start
of the process to the end of the first round, and to the end of the command (which also evaluates,
draws and saves). Memory is the peak of the process over the whole command, and the sum of the peaks
of its workers up to the end of the first round; those of `ray` are two actors and Ray itself.
Values are medians of {repeats} runs; the runtimes take turns."""

_RUNTIMES = ("inprocess", "tff", "ray")
_MOST_REPEATS = 3


def run(plan: measure.Plan) -> Section:
    """Measures every runtime; only the default one if the plan is quick."""
    runtimes = [*(_RUNTIMES[:1] if plan.quick else _RUNTIMES)]
    if "tff" in runtimes and not launcher.can_isolate():
        runtimes.remove("tff")
    if "ray" in runtimes and not processes.has_ray():
        runtimes.remove("ray")
    repeats = 1 if plan.quick else min(plan.repeats, _MOST_REPEATS)
    runs: dict[str, list[dict]] = {runtime: [] for runtime in runtimes}
    for repeat in range(repeats):
        for runtime in runtimes:
            measure.note(f"startup: {runtime}, {repeat + 1} of {repeats}")
            runs[runtime].append(_train(runtime, plan.quick))
    rows = [
        {
            "runtime": runtime,
            **{
                key: statistics.median(run[key] for run in runs_of_runtime)
                for key in runs_of_runtime[0]
            },
            "runs": runs_of_runtime,
        }
        for runtime, runs_of_runtime in runs.items()
    ]
    columns = {
        "runtime": "runtime",
        "first round (s)": "first_round_seconds",
        "whole command (s)": "seconds",
        "process (MB)": "memory_mb",
        "workers (MB)": "workers_memory_mb",
    }
    table = Table("Start-up", columns, rows)
    return Section("Start-up and memory", _TEXT.format(repeats=repeats), [table])


def _train(runtime: str, quick: bool) -> dict[str, float]:
    """Runs tasks.train once in a new process; returns the measurements."""
    with contextlib.ExitStack() as stack:
        directory = stack.enter_context(tempfile.TemporaryDirectory())
        arguments = ["--rounds=1", f"--runtime={runtime}", "--noprogress"]
        arguments += [f"--output_dir={directory}"]
        if quick:
            arguments += ["--max_train_samples=100", "--max_test_samples=100", "--local_epochs=1"]
        if runtime == "ray":
            arguments.append("--ray_actors=2")
        start = time.perf_counter()
        process = processes.start_module(
            "tff_pcdd.benchmarks.first_round", *arguments, stdout=subprocess.PIPE
        )
        first_round = memory = None
        output = processes.standard_output(process)
        for line in output:
            if line.strip() == FIRST_ROUND:
                first_round = time.perf_counter() - start
                pids = processes.children(process.pid)
                workers_memory = sum(map(processes.peak_memory, pids))
            elif line.startswith(PEAK_MEMORY):
                memory = float(line.removeprefix(PEAK_MEMORY))
        process.wait()
        seconds = time.perf_counter() - start
        output.close()
    if process.returncode or first_round is None or memory is None:
        raise RuntimeError(f"tasks.train --runtime={runtime} exited with {process.returncode}")
    return {
        "first_round_seconds": first_round,
        "seconds": seconds,
        "memory_mb": memory,
        "workers_memory_mb": workers_memory,
    }
