"""What a program is doing while nothing else is shown, such as loading data or building models.

The library names its stages here; they are shown only by a program that has asked for it. On a
terminal a stage is a line that the next one replaces; elsewhere, such as in a log file, a stage
that takes long is a line of its own, once: in a study of many runs, each run has the same stages.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Callable, Iterator

# The name of the logger that says what was loaded; only programs show it, too.
LOADED = "tff_pcdd.loaded"

# Seconds after which a stage is shown; shorter ones would only flicker.
_DELAY = 0.4


class Delayed:
    """Shows the current stage once it has taken a while; subclasses say how.

    A stage that follows one that is shown is shown at once, in its place.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._timer: threading.Timer | None = None
        self._shown = False

    def show(self, stage: str) -> bool:
        """Shows a stage; returns whether it has to be cleared or replaced later."""
        raise NotImplementedError

    def clear(self) -> None:
        """Removes the stage that is shown."""

    def enter(self, stage: str) -> None:
        """Replaces the current stage; an empty text ends it."""
        with self._lock:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
            if self._shown and not stage:
                self.clear()
                self._shown = False
            if stage:
                delay = 0 if self._shown else _DELAY
                self._timer = threading.Timer(delay, self._show_current, (stage,))
                self._timer.daemon = True
                # Without a thread, nothing is shown.
                with contextlib.suppress(RuntimeError):
                    self._timer.start()

    def _show_current(self, stage: str) -> None:
        with self._lock:
            if threading.current_thread() is self._timer:
                self._shown = self.show(stage)


class _Display(Delayed):
    """Shows the current stage on standard error."""

    def __init__(self, label: str):
        super().__init__()
        self._label = label
        self._written: set[str] = set()

    def show(self, stage: str) -> bool:
        text = f"{self._label}: {stage} …"
        terminal = sys.stderr.isatty()
        if not terminal and stage in self._written:
            return False
        self._written.add(stage)
        # There may be no terminal any more.
        with contextlib.suppress(OSError, ValueError):
            sys.stderr.write(f"\r\x1b[K{text}" if terminal else f"{text}\n")
            sys.stderr.flush()
        return terminal

    def clear(self) -> None:
        with contextlib.suppress(OSError, ValueError):
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()


class _Listener:
    """Passes the current stage on."""

    def __init__(self, listener: Callable[[str], None]):
        self.enter = listener


_display: _Display | _Listener | None = None


def enter(stage: str) -> None:
    """Says what the program does from now on, until it enters the next stage.

    Args:
        stage: a few words, such as "loading data".
    """
    if _display is not None:
        _display.enter(stage)


def leave() -> None:
    """Ends the current stage, before something else is shown."""
    if _display is not None:
        _display.enter("")


@contextlib.contextmanager
def passed_on(listener: Callable[[str], None]) -> Iterator[None]:
    """Calls `listener` with each stage that is entered within the block, instead of showing it.

    Args:
        listener: gets the stage; an empty text when it ends.
    """
    global _display
    before, _display = _display, _Listener(listener)
    try:
        yield
    finally:
        _display = before


@contextlib.contextmanager
def shown(label: str) -> Iterator[None]:
    """Shows the stages that are entered within the block.

    Args:
        label: stands in front of them.
    """
    global _display
    _display = _Display(label)
    try:
        yield
    finally:
        leave()
        _display = None
