"""Ctrl-C, SIGTERM and SIGHUP end a program within three seconds, wherever they arrive.

Python turns a signal into an exception in the main thread, between two of its instructions. That is
not enough: the main thread may be inside a long call of TensorFlow, wait for another thread, or
execute a callback of the garbage collector, where exceptions are dropped. So a second thread, which
the kernel wakes through a pipe, ends the process if the exception does not. All files are written
such that a process may end at any time.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import time
from typing import Any

_SIGNALS: dict[int, str] = {
    signal.SIGINT: "interrupted",
    signal.SIGTERM: "terminated",
    signal.SIGHUP: "ended because its terminal was closed",
}
# Seconds for the program to close its files and workers by itself.
PATIENCE = 2.0
_STEP = 0.05


def status(number: int) -> int:
    """The exit status of a program that a signal ended, by the convention of shells."""
    return 128 + number


class Ended(KeyboardInterrupt):
    """A signal ends the program; a `KeyboardInterrupt`, which libraries know to let through."""


class Ending:
    """Turns the first signal into an `Ended` in the main thread; further ones change nothing.

    Signals that were ignored before, such as SIGHUP under `nohup`, stay ignored.

    Args:
        program: name of the program, for the line that says that it ended.
        restore: whether the handlers of before are in force again after the block, instead of those
            that end the process at once.
        hint: what a user can do then, at the end of that line.

    Attributes:
        number: the first signal; None if none has arrived.
    """

    def __init__(self, program: str, *, restore: bool, hint: str):
        self._hint = hint
        self.number: int | None = None
        self._program = program
        self._restore = restore
        self._said = threading.Lock()
        self._over = threading.Event()
        self._dropped = threading.Event()

    def __enter__(self) -> Ending:
        self._previous_hook = sys.unraisablehook
        sys.unraisablehook = self._unraisable_error
        self._pipe = os.pipe()
        os.set_blocking(self._pipe[1], False)
        self._wakeup = signal.set_wakeup_fd(self._pipe[1], warn_on_full_buffer=False)
        threading.Thread(target=self._watch, name="signals", daemon=True).start()
        self._handlers: dict[int, Any] = {}
        for number in _SIGNALS:
            if signal.getsignal(number) != signal.SIG_IGN:
                self._handlers[number] = signal.signal(number, self._raise)
        return self

    def __exit__(self, *exc_info: object) -> None:
        """After a signal, ends the program: any error is a consequence of it.

        A process of its own ends without waiting for threads that still compute, and without
        freeing its memory piece by piece, which may take seconds.
        """
        self._report()
        if self.number is not None and not self._restore:
            with contextlib.suppress(OSError):
                sys.stdout.flush()
            os._exit(status(self.number))
        for number, handler in self._handlers.items():
            signal.signal(number, handler if self._restore else signal.SIG_DFL)
        self._over.set()
        signal.set_wakeup_fd(self._wakeup)
        sys.unraisablehook = self._previous_hook
        os.close(self._pipe[1])
        if self.number is not None:
            sys.exit(status(self.number))

    def _report(self) -> None:
        """Says on standard error that a signal has arrived, unless that has been said."""
        if self.number is not None and self._said.acquire(blocking=False):
            line = f"{self._program}: {_SIGNALS[self.number]}; {self._hint}"
            # There may be no terminal any more.
            with contextlib.suppress(OSError):
                print(line, file=sys.stderr, flush=True)

    def _raise(self, number: int, frame: Any) -> None:
        if self.number is None:
            self.number = number
            raise Ended

    def _unraisable_error(self, unraisable: Any) -> None:
        """Notes that the exception of a signal was dropped, instead of showing it."""
        if isinstance(unraisable.exc_value, Ended):
            self._dropped.set()
        else:
            self._previous_hook(unraisable)

    def _watch(self) -> None:
        """Ends the process some time after a signal, unless it ends by itself."""
        arrived = self._next()
        if arrived is None:
            return
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            if self._over.wait(_STEP):
                return
            if self._dropped.is_set():
                self._dropped.clear()
                self.number = None
                signal.pthread_kill(threading.main_thread().ident or 0, arrived)
        self.number = arrived
        self._report()
        os._exit(status(arrived))

    def _next(self) -> int | None:
        """Waits for a signal of those that end the process; None when the block ends."""
        while byte := os.read(self._pipe[0], 1):
            if byte[0] in self._handlers:
                return byte[0]
        os.close(self._pipe[0])
        return None
