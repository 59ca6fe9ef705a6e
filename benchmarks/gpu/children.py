"""Programs that measure cases one after the other, and are started again if one of them fails."""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks import processes
from benchmarks.gpu.ledger import Ledger

# How many of the last lines of a failed process are kept, and characters of them.
_LINES, _SHOWN = 8, 1500

_LIBRARIES = "LD_LIBRARY_PATH"

Case = Mapping[str, Any]
# A command and its environment.
Program = tuple[list[str], dict[str, str]]


class Child:
    """A program that prints lines of JSON; ended with the block.

    Args:
        command: the program and its arguments.
        environment: its environment.
    """

    def __init__(self, command: Sequence[str], environment: Mapping[str, str]):
        self._errors = tempfile.TemporaryFile("w+", errors="replace")  # noqa: SIM115
        self._process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            env=environment,
            cwd=processes.ROOT,
        )
        self._lines: queue.Queue[str | None] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        for line in processes.standard_output(self._process):
            self._lines.put(line)
        self._lines.put(None)

    def __enter__(self) -> Child:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        self._errors.close()

    def next(self, seconds: float) -> dict[str, Any] | None:
        """The next line of JSON; None if there is none within so many seconds.

        Raises:
            EOFError: the program has ended; the message is what it wrote last.
        """
        end = time.monotonic() + seconds
        try:
            while (line := self._lines.get(timeout=max(0, end - time.monotonic()))) is not None:
                if line.startswith("{"):
                    return json.loads(line)
        except queue.Empty:
            return None
        status = self._process.wait()
        self._errors.seek(0)
        lines = [text.strip() for text in self._errors if text.strip()]
        said = " | ".join(lines[-_LINES:])[-_SHOWN:]
        raise EOFError(f"exited with {status}: {said or 'no message'}")


def own(module: str, *arguments: str) -> Program:
    """The command and the environment of a module of the clone."""
    environment = {**processes.environment(), "TF_CPP_MIN_LOG_LEVEL": "3"}
    return [sys.executable, "-m", module, *arguments], environment


def other(python: str, *arguments: str) -> Program:
    """The command and the environment of a program in another Python.

    What points programs to this Python's packages and libraries is left out; the folder of the
    driver may be one of those in which libraries are looked for.
    """
    ours = ("PYTHONPATH", "PYTHONHOME", _LIBRARIES, "XLA_FLAGS")
    environment = {name: value for name, value in os.environ.items() if name not in ours}
    folders = os.environ.get(_LIBRARIES, "").split(":")
    if kept := [each for each in folders if each and not [*Path(each).glob("libcudnn*")]]:
        environment[_LIBRARIES] = ":".join(kept)
    return [python, *arguments], environment


def measured_in_turn(
    program: Callable[[Sequence[Case]], Program],
    cases: Sequence[Case],
    ledger: Ledger,
    seconds: float,
) -> Iterator[tuple[Case, dict[str, Any]]]:
    """Runs a program that prints a line of JSON for each of its cases, in order.

    A case that takes too long or ends the program has a note in the place of measurements, and the
    program is started again for those that follow. At the deadline, the rest is left out.

    Args:
        program: the command and the environment for the cases that are left.
        cases: what is measured.
        ledger: has the deadline.
        seconds: the most that a case may take.

    Yields:
        A case, and what was measured.
    """
    left = list(cases)
    while left and ledger.left():
        with Child(*program(left)) as child:
            while left:
                try:
                    found = child.next(min(seconds, ledger.left()))
                except EOFError as error:
                    yield left.pop(0), {"note": str(error)}
                    break
                if found is None:
                    if not ledger.left():
                        return
                    yield left.pop(0), {"note": f"not finished after {seconds:.0f} s"}
                    break
                yield left.pop(0), found
