"""Contenders in processes of their own, which compute a round on request.

A process prints a line of JSON when it is ready, computes a round for each line `round` that it
reads, saves its weights for a line `weights PATH`, and answers every request with a line of JSON.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import tempfile
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import processes
from tff_pcdd.runtime.processes import children

# Seconds between two looks at the memory of processes.
_INTERVAL = 0.02
# Seconds in which a process has to end.
_PATIENCE = 20
# The most characters of a failed process' last line that are reported.
_SHOWN = 300


class ContenderError(RuntimeError):
    """A process ended without an answer; the message is the last line that it wrote."""


class Contender:
    """A process, to be used as a context manager.

    It runs only while it is asked: between requests, it and its descendants are stopped.

    Args:
        command: the program and its arguments.
    """

    def __init__(self, command: Sequence[str]):
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115  (closed by __exit__)
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            # Flower would report its use over the network.
            env={**processes.environment(), "FLWR_TELEMETRY_ENABLED": "0"},
        )
        self.versions: dict[str, str] = {}

    def __enter__(self) -> Contender:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        descendants = children(self.pid)
        self._signal(signal.SIGCONT if kind is None else signal.SIGKILL)
        # At the end of its input, the process ends; libraries may wait for threads of theirs.
        try:
            self._process.communicate(timeout=_PATIENCE)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.communicate()
        for pid in descendants:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        self._errors.close()

    @property
    def pid(self) -> int:
        return self._process.pid

    def wait_until_ready(self) -> None:
        """Waits for the first line, which states versions.

        The process is not stopped before its first request is answered: Ray, which still starts in
        the background, would then wait for its timeouts.

        Raises:
            ContenderError: the process ended.
        """
        self.versions = self._answer()["versions"]

    def next(self) -> None:
        """Computes a round.

        Raises:
            ContenderError: the process ended.
        """
        self._ask("round")

    def weights(self) -> dict[str, np.ndarray]:
        """The global weights by name; empty if the process does not report them.

        Raises:
            ContenderError: the process ended.
        """
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "weights.npz"
            self._ask(f"weights {path}")
            with np.load(path) as file:
                return {name: file[name] for name in file.files}

    def peak_memory(self) -> float:
        """The most memory in MB that the process and its descendants use during another round.

        It is the sum of their proportional set sizes, in which pages that several processes share
        count once, read from outside every few milliseconds.

        Raises:
            ContenderError: the process ended.
        """
        found, ended = [0.0], threading.Event()

        def watch():
            while not ended.is_set():
                pids = [self.pid, *children(self.pid)]
                found.append(sum(map(proportional_memory, pids)))
                ended.wait(_INTERVAL)

        watcher = threading.Thread(target=watch)
        watcher.start()
        try:
            self.next()
        finally:
            ended.set()
            watcher.join()
        return max(found)

    @contextlib.contextmanager
    def _running(self) -> Iterator[None]:
        self._signal(signal.SIGCONT)
        try:
            yield
        finally:
            self._signal(signal.SIGSTOP)

    def _signal(self, number: signal.Signals) -> None:
        for pid in [self.pid, *children(self.pid)]:
            with contextlib.suppress(OSError):
                os.kill(pid, number)

    def _ask(self, request: str) -> Any:
        assert self._process.stdin is not None
        with self._running():
            try:
                self._process.stdin.write(f"{request}\n")
                self._process.stdin.flush()
            except BrokenPipeError:
                raise ContenderError(self._last_words()) from None
            return self._answer()

    def _answer(self) -> Any:
        line = processes.standard_output(self._process).readline()
        if not line:
            raise ContenderError(self._last_words())
        return json.loads(line)

    def _last_words(self) -> str:
        status = self._process.wait()
        self._errors.seek(0)
        lines = [line.strip() for line in self._errors if line.strip()]
        return f"exited with {status}: {lines[-1] if lines else 'without a message'}"[:_SHOWN]


def proportional_memory(pid: int) -> float:
    """Proportional set size of a process in MB; 0 if the process has ended."""
    with contextlib.suppress(OSError):
        match = re.search(r"^Pss:\s+(\d+) kB", Path(f"/proc/{pid}/smaps_rollup").read_text(), re.M)
        if match:
            return int(match[1]) / 1000
    return 0.0
