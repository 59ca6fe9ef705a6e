"""Records of the calls of a program, in its output directory: when, how long, where, which commit.

A call has a line when it begins and another one when it ends, so a call that was killed is known to
lack its time.
"""

from __future__ import annotations

import contextlib
import datetime
import json
import os
import platform
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tff_pcdd import files, machine, stack
from tff_pcdd._version import __version__
from tff_pcdd.errors import DamagedFileError

# What a record says of the machine and the software.
_MACHINE = (
    "version",
    "commit",
    "cpu",
    "cores",
    "memory_gib",
    "python",
    "tensorflow",
    "tensorflow_federated",
)


@contextlib.contextmanager
def recorded(
    path: Path, arguments: Sequence[str], *, anew: bool = False, **further: Any
) -> Iterator[None]:
    """Appends a line to a file before the block, and one after it.

    Args:
        path: the file.
        arguments: the command line, without the program.
        anew: whether to forget earlier calls, whose results are deleted.
        **further: what else to record.

    Raises:
        WriteError: the file cannot be written.
    """
    described = describe_machine()
    start, process = time.monotonic(), files.process_name()
    files.make_directory(path.parent)
    if anew:
        files.remove(path)
    _append(
        path,
        {
            "started": _now(),
            "process": process,
            "arguments": list(arguments),
            **further,
            **{name: described[name] for name in _MACHINE},
        },
    )
    completed = False
    try:
        yield
        completed = True
    finally:
        seconds = round(time.monotonic() - start, 1)
        ended = {"ended": _now(), "process": process, "seconds": seconds, "completed": completed}
        # An error of the block must not be hidden by one of this record.
        with contextlib.nullcontext() if completed else contextlib.suppress(OSError):
            _append(path, ended)


def read(path: Path) -> list[dict[str, Any]]:
    """What each call has recorded, in the order of their begins; none without a file.

    A call that was killed has no `ended` and no `seconds`.

    Raises:
        DamagedFileError: the file is not such a record.
    """
    calls: list[dict[str, Any]] = []
    if not path.exists():
        return calls
    try:
        for line in map(json.loads, files.read_bytes(path).decode().splitlines()):
            if not isinstance(line, dict) or not {"started", "ended"} & {*line}:
                raise ValueError("a line that neither begins nor ends a call")
            if "started" in line:
                calls.append(line)
            # Calls at the same time had lost lines of each other in earlier versions.
            elif own := [call for call in calls if _is_ended_by(line, call)]:
                own[-1].update(line)
    except (OSError, ValueError, RecursionError) as error:
        raise DamagedFileError(f"{path} is damaged ({error})") from None
    return [{name: call[name] for name in call if name != "process"} for call in calls]


def _is_ended_by(line: Mapping[str, Any], call: Mapping[str, Any]) -> bool:
    return "ended" not in call and line.get("process") == call.get("process")


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")


def _append(path: Path, record: dict[str, Any]) -> None:
    files.append_text(path, f"{json.dumps(record, ensure_ascii=False)}\n")


def describe_machine() -> dict[str, Any]:
    """The machine, its load and the versions of the software."""
    cpu, memory = platform.processor() or platform.machine(), None
    for line in machine.lines_of(machine.CPUINFO):
        if line.startswith("model name"):
            cpu = line.partition(":")[2].strip()
            break
    for line in machine.lines_of(Path("/proc/meminfo")):
        if line.startswith("MemTotal"):
            memory = round(int(line.split()[1]) / 2**20, 1)
    return {
        "cores": len(os.sched_getaffinity(0)),
        "cpu": cpu,
        "bfloat16": machine.bfloat16_instructions(),
        "memory_gib": memory,
        "system": platform.platform(terse=True),
        "date": datetime.date.today().isoformat(),
        "version": __version__,
        "commit": commit(),
        "python": platform.python_version(),
        "tensorflow": stack.version("tensorflow"),
        "tensorflow_federated": stack.version("tensorflow-federated"),
        "ray": stack.version("ray"),
        "load_average": [round(load, 2) for load in os.getloadavg()],
    }


def commit() -> str | None:
    """The commit of the clone that this package lies in, and whether files differ from it."""
    git = ("git", "-C", str(Path(__file__).parent))
    try:
        commit, changes = (
            subprocess.run(
                [*git, *arguments], check=True, capture_output=True, text=True
            ).stdout.strip()
            for arguments in (
                ("rev-parse", "--short=12", "HEAD"),
                ("status", "--porcelain", "--untracked-files=no"),
            )
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return f"{commit} with uncommitted changes" if changes else commit
