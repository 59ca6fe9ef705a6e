"""Section `gpu_sight`: what TensorFlow sees of a GPU, the tests marked `gpu`, the first step."""

from __future__ import annotations

import functools
import importlib.util
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import tensorflow as tf

from benchmarks import measure, processes
from benchmarks.gpu import children
from benchmarks.gpu.ledger import Ledger, can_measure, unmeasured
from benchmarks.report import Section, Table

_TITLE = "GPU: sight"
_TEXT = """\
{made_with} The tests marked `gpu` ([GPU](how-to/gpu.md#tests-and-measurements)) run in four
processes. *First step* is `tasks.train` on digits with Simple-CNN: seconds from the start of the
process to the end of the first round."""

# In a quick run, one test on the processor.
_QUICK_TESTS = ("--gpu-stand-in", "-k", "fedavg and repeated")
_PROCESSES = 4
# Characters of a failed test's message that are kept.
_SHOWN = 1500
# Rounds in the first steps of a quick run.
_TINY = ("--max_train_samples=100", "--max_test_samples=100", "--local_epochs=1")


def run(plan: measure.Plan) -> Section:
    """Looks, tests and trains for a round, without and with XLA."""
    if not can_measure(plan):
        return unmeasured(_TITLE)
    ledger = Ledger(plan, "gpu_sight")
    ledger.measure("nvidia-smi", _nvidia_smi)
    ledger.measure("devices", _devices)
    for compile in ("off", "client"):
        measure.note(f"gpu_sight: first step, compile={compile}")
        call = functools.partial(_first_step, compile, plan)
        ledger.measure(f"first step, compile={compile}", call)
    measure.note("gpu_sight: tests")
    ledger.measure("tests", lambda: _tests(plan, ledger.left()))
    rows = [{"what": name, "found": _shown(value)} for name, value in ledger.cases.items()]
    rows = [row for row in rows if row["what"] != "nvidia-smi"]
    columns = {"": "what", "found": "found"}
    return Section(_TITLE, _TEXT.format(made_with=ledger.text()), [Table(_TITLE, columns, rows)])


def _shown(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {_shown(each)}" for key, each in value.items() if key != "failed")
    return f"{value:.1f}" if isinstance(value, float) else str(value)


def _nvidia_smi() -> str:
    try:
        return subprocess.run(["nvidia-smi"], capture_output=True, text=True).stdout
    except OSError as error:
        return str(error)


def _devices() -> dict[str, Any]:
    """What TensorFlow says of its GPUs."""
    return {
        device.name: tf.config.experimental.get_device_details(device)
        for device in tf.config.list_physical_devices("GPU")
    } or {"GPU": "none"}


def _first_step(compile: str, plan: measure.Plan) -> dict[str, float | str]:
    """Seconds to the end of the first round, and of the command."""
    from benchmarks.startup import FIRST_ROUND

    start, first = time.perf_counter(), None
    with tempfile.TemporaryDirectory() as folder:
        flags = ["--rounds=1", "--noprogress", f"--compile={compile}"]
        flags.append(f"--output_dir={folder}/run")
        command, environment = children.own(
            "benchmarks.first_round", *flags, *(_TINY if plan.quick else ())
        )
        with open(Path(folder) / "errors", "w+", errors="replace") as errors:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                env=environment,
            )
            for line in processes.standard_output(process):
                if line.strip() == FIRST_ROUND:
                    first = time.perf_counter() - start
            if process.wait() or first is None:
                errors.seek(0)
                return {"note": f"exited with {process.returncode}: {errors.read()[-_SHOWN:]}"}
    return {"seconds": first, "command": time.perf_counter() - start}


def _tests(plan: measure.Plan, seconds: float) -> dict[str, Any]:
    """How many of the tests marked `gpu` passed, and the messages of those that failed."""
    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "tests.xml"
        command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-m", "gpu"]
        command += ["tests/gpu", f"--junitxml={report}"]
        if plan.quick:
            command += _QUICK_TESTS
        elif importlib.util.find_spec("xdist"):
            command += [f"--numprocesses={_PROCESSES}", "--dist=worksteal"]
        try:
            done = subprocess.run(
                command,
                capture_output=True,
                text=True,
                cwd=processes.ROOT,
                env=processes.environment(),
                timeout=max(seconds, 1),
            )
        except subprocess.TimeoutExpired:
            return {"note": f"not finished after {seconds:.0f} s"}
        if not report.exists():
            return {
                "note": f"exited with {done.returncode}: {(done.stdout + done.stderr)[-_SHOWN:]}"
            }
        return {**_counts(report), "seconds": time.perf_counter() - start}


def _counts(report: Path) -> dict[str, Any]:
    """What a report in JUnit's format says."""
    counts, failed = {"passed": 0, "failures": 0, "skipped": 0}, {}
    for case in ElementTree.parse(report).iter("testcase"):
        problems = [*case.findall("failure"), *case.findall("error")]
        if problems:
            counts["failures"] += 1
            text = f"{problems[0].get('message')}\n{problems[0].text}"
            failed[f"{case.get('classname')}::{case.get('name')}"] = text[-_SHOWN:]
        else:
            counts["skipped" if case.find("skipped") is not None else "passed"] += 1
    return {**counts, "failed": failed}
