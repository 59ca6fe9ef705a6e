"""Section `gpu_sight`: what TensorFlow sees of a GPU, the tests marked `gpu`, the first step."""

from __future__ import annotations

import functools
import importlib.util
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import tensorflow as tf

from benchmarks import measure, processes
from benchmarks.gpu import children
from benchmarks.gpu.ledger import Ledger, Measurements, can_measure, unmeasured
from benchmarks.report import Section, Table

_TITLE = "GPU: sight"
_TEXT = """\
{made_with} The tests marked `gpu` ([GPU](how-to/gpu.md#tests-and-measurements)) run in fourteen
processes. *First step* is `tasks.train` on digits with Simple-CNN: seconds from the start of the
process to the end of the first round; then twice more with a directory in which TensorFlow keeps
compiled programs (`TF_XLA_FLAGS`), which is empty before the first of the two."""

# Those of the methods take longest.
_TESTS = [f"tests/gpu/test_{name}.py" for name in ("runs", "networks", "methods")]
# In a quick run, one test on the processor.
_QUICK_TESTS = ("--gpu-stand-in", "-k", "fedavg and repeated")
# About as many as the cores of a machine with a GPU: tracing keeps each of them busy.
_PROCESSES = 14
# Seconds within which interrupted tests end, and after which a first step is given up.
_ENDS, _PATIENCE = 20, 150
# Characters of a failed test's message that are kept.
_SHOWN = 1500
# Rounds in the first steps of a quick run; XLA compiles steps on full batches only.
_TINY = ("--max_train_samples=100", "--max_test_samples=100", "--local_epochs=1", "--batch_size=5")
# TensorFlow's flags that keep XLA's programs in a directory.
_KEEPING = "--tf_xla_persistent_cache_directory={} --tf_xla_persistent_cache_device_types=GPU,CPU"


def run(plan: measure.Plan) -> Section:
    """Looks, tests and trains for a round, without and with XLA."""
    if not can_measure(plan):
        return unmeasured(_TITLE)
    ledger = Ledger(plan, "gpu_sight")
    ledger.measure("nvidia-smi", _nvidia_smi)
    ledger.measure("devices", _devices)
    for compile in ("off", "client"):
        measure.note(f"gpu_sight: first step, compile={compile}")
        call = functools.partial(_first_step, compile, plan, ledger)
        ledger.measure(f"first step, compile={compile}", call)
    measure.note("gpu_sight: first step, programs kept")
    ledger.measure("first steps, programs kept", lambda: _first_steps_with_kept(plan, ledger))
    measure.note("gpu_sight: tests")
    ledger.measure("tests", lambda: _tests(plan, ledger.left()))
    return section(ledger)


def section(measured: Measurements) -> Section:
    """What was seen."""
    rows = [{"what": name, "found": _shown(value)} for name, value in measured.cases.items()]
    rows = [row for row in rows if row["what"] != "nvidia-smi"]
    columns = {"": "what", "found": "found"}
    return Section(_TITLE, _TEXT.format(made_with=measured.text()), [Table(_TITLE, columns, rows)])


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


def _first_steps_with_kept(plan: measure.Plan, ledger: Ledger) -> dict[str, Any]:
    """Seconds of a process that keeps its programs, and of one that finds them."""
    with tempfile.TemporaryDirectory() as folder:
        kept = _KEEPING.format(folder)
        first, second = (_first_step("client", plan, ledger, kept) for _ in range(2))
        return {
            **first,
            "kept": sum(1 for _ in Path(folder).iterdir()),
            **{f"{name} again": value for name, value in second.items()},
        }


def _first_step(
    compile: str, plan: measure.Plan, ledger: Ledger, xla_flags: str = ""
) -> dict[str, float | str]:
    """Seconds to the end of the first round, and of the command."""
    from benchmarks.startup import FIRST_ROUND

    start, first = time.perf_counter(), None
    with tempfile.TemporaryDirectory() as folder:
        flags = ["--rounds=1", "--noprogress", f"--compile={compile}"]
        flags.append(f"--output_dir={folder}/run")
        command, environment = children.own(
            "benchmarks.first_round", *flags, *(_TINY if plan.quick else ())
        )
        if xla_flags:
            environment["TF_XLA_FLAGS"] = xla_flags
        with open(Path(folder) / "errors", "w+", errors="replace") as errors:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                env=environment,
            )
            timer = threading.Timer(min(_PATIENCE, ledger.left()), process.kill)
            timer.start()
            for line in processes.standard_output(process):
                if line.strip() == FIRST_ROUND:
                    first = time.perf_counter() - start
            timer.cancel()
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
        command += [*_TESTS, "-rp", f"--junitxml={report}"]
        if plan.quick:
            command += _QUICK_TESTS
        elif importlib.util.find_spec("xdist"):
            command += [f"--numprocesses={_PROCESSES}", "--dist=worksteal"]
        with open(Path(folder) / "printed", "w+", errors="replace") as printed:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=printed,
                stderr=subprocess.STDOUT,
                cwd=processes.ROOT,
                env=processes.environment(),
            )
            ended, found = _ended(process, seconds), {}
            printed.seek(0)
            text = printed.read()
            if report.exists():
                found = {**_counts(report), "seconds": time.perf_counter() - start}
            if not ended:
                # The report has those that were interrupted, as if they had passed.
                passed = sum(line.startswith("PASSED ") for line in text.splitlines())
                found |= {"passed": passed, "note": f"not finished after {seconds:.0f} s"}
            elif not found:
                found["note"] = f"exited with {process.returncode}: {text[-_SHOWN:]}"
        return found


def _ended(process: subprocess.Popen, seconds: float) -> bool:
    """Whether pytest ended by itself; otherwise it is interrupted, and reports what it has."""
    try:
        process.wait(max(seconds - _ENDS, 1))
        return True
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGINT)
    try:
        process.wait(_ENDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    return False


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
