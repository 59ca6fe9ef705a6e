"""Other processes: the model server, and the memory that processes use."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

from benchmarks.report import Table
from tff_pcdd.runtime.processes import children

# The root of a clone. Neither the server nor the flagfiles are part of an installed package.
ROOT = Path(__file__).resolve().parents[1]

# The model server has an environment of its own.
SERVING_PYTHON = ROOT / ".venv-serving" / "bin" / "python"
SERVING_ADAPTER = ROOT / "serving" / "adapter.py"


def start_module(module: str, *arguments: str, **options) -> subprocess.Popen:
    """Starts `python -m module`."""
    command = [sys.executable, "-m", module, *arguments]
    return subprocess.Popen(command, text=True, env=environment(), **options)


def environment() -> dict[str, str]:
    """The environment of a process that finds the modules of the clone, wherever it starts."""
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}


def measured_by(module: str, *sizes: int) -> Any:
    """Runs `python -m module` with sizes as arguments; returns what its last line says in JSON.

    Raises:
        RuntimeError: it fails.
    """
    process = start_module(module, *map(str, sizes), stdout=subprocess.PIPE)
    output, _ = process.communicate()
    if process.returncode:
        raise RuntimeError(f"{module} exited with {process.returncode}")
    return json.loads(output.splitlines()[-1])


def watched(
    module: str, *arguments: str, look: Callable[[int], dict[str, Any]]
) -> list[dict[str, Any]]:
    """Runs `python -m module`, and looks at it from outside at every line that it prints.

    The module prints JSON objects with `pause`, which waits until it has been looked at.

    Args:
        module: the module.
        *arguments: its arguments.
        look: returns measurements of the process with an id.

    Returns:
        For each line, its values and the measurements.

    Raises:
        RuntimeError: it fails.
    """
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    process, found = start_module(module, *arguments, **pipes), []
    assert process.stdin is not None
    with process:
        for line in standard_output(process):
            if not line.startswith("{"):  # Ray's workers print as well.
                continue
            found.append({**json.loads(line), **look(process.pid)})
            process.stdin.write("\n")
            process.stdin.flush()
    if process.returncode:
        raise RuntimeError(f"{module} exited with {process.returncode}")
    return found


def pause(**values: Any) -> None:
    """Prints values, and waits until the process that started this one has looked at it."""
    print(json.dumps(values), flush=True)
    sys.stdin.readline()


def resident_memory(pid: int) -> float:
    """Resident memory of a process in MB."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def has_ray() -> bool:
    """Whether the extra `ray` is installed, and this machine has cores for two actors."""
    return importlib.util.find_spec("ray") is not None and len(os.sched_getaffinity(0)) > 1


def without_ray(title: str) -> Table:
    """In place of what cannot be measured unless `has_ray()`."""
    row = {"note": "not measured: needs the extra `ray` and two cores"}
    return Table(title, {"": "note"}, [row])


def standard_output(process: subprocess.Popen) -> IO[str]:
    """What a process writes; it must have been started with `stdout=subprocess.PIPE`."""
    if process.stdout is None:
        raise ValueError("the standard output of the process is not a pipe")
    return process.stdout


@contextlib.contextmanager
def model_server(export_dir: str | os.PathLike, *arguments: str) -> Iterator[tuple[str, int]]:
    """Starts the server of `make serve` on a free port; yields its first line and the port."""
    command = [str(SERVING_PYTHON), str(SERVING_ADAPTER), f"--export_dir={export_dir}", "--port=0"]
    process = subprocess.Popen([*command, *arguments], stdout=subprocess.PIPE, text=True)
    try:
        line = standard_output(process).readline()
        match = re.search(r":(\d+)/", line)
        if match is None:
            raise RuntimeError(f"the server of {export_dir} did not start")
        yield line, int(match[1])
    finally:
        process.terminate()
        process.wait()
        standard_output(process).close()


@contextlib.contextmanager
def ended_afterwards() -> Iterator[None]:
    """Kills the descendants of this process that were started inside the block and still run.

    It does not wait for them. TFF's context does so when it is garbage-collected, but the signal
    that it sends first is ignored by workers of a background job.
    """
    before = set(children(os.getpid()))
    try:
        yield
    finally:
        for pid in set(children(os.getpid())) - before:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)


def peak_memory(pid: int) -> float:
    """Peak resident memory of a process in MB; 0 if the process has ended.

    Unlike `getrusage`, it does not include the peak of the process that started this one.
    """
    with contextlib.suppress(OSError):
        match = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
        if match:
            return int(match[1]) / 1000
    return 0.0
