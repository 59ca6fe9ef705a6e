"""Records of the calls of a program, in its output directory: when, how long, where, which commit.

A call has a line when it begins and another one when it ends, so a call that was killed is known to
lack its time.
"""

from __future__ import annotations

import contextlib
import datetime
import json
import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from tff_pcdd import files

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
    from tff_pcdd.benchmarks.report import describe_machine

    machine = describe_machine()
    start, process = time.monotonic(), os.getpid()
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
            **{name: machine[name] for name in _MACHINE},
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


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")


def _append(path: Path, record: dict[str, Any]) -> None:
    """Adds a line; the file is replaced, so a full disk leaves no half-written line in it."""
    earlier = path.read_text(encoding="utf-8") if path.exists() else ""
    files.write_text(path, f"{earlier}{json.dumps(record, ensure_ascii=False)}\n")
