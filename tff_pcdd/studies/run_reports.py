"""How a process that computes runs of a study reports stages, rounds and log messages."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from tff_pcdd import stages
from tff_pcdd.training.callbacks import Callback


class News(NamedTuple):
    """An event of a run.

    Attributes:
        run: the number of the run.
        kind: "stage", "begin", "round", "log", "end", or "mark", which the process of the study
            sends to itself.
        value: for "stage", its text; for "begin" and "round", the number of rounds so far, the last
            round and a text; for "log", a record of `logging`.
    """

    run: int
    kind: str
    value: Any = None


class _Stage(stages.Delayed):
    """Reports what takes long."""

    def __init__(self, number: int, send: Callable[[News], None]):
        super().__init__()
        self._number = number
        self._send = send

    def show(self, stage: str) -> bool:
        self._send(News(self._number, "stage", stage))
        return True

    def clear(self) -> None:
        self._send(News(self._number, "stage", ""))


class Report(Callback):
    """Reports the rounds of a run."""

    def __init__(self, number: int, send: Callable[[News], None]):
        self._number = number
        self._send = send
        self._text = ""
        self._stage = _Stage(number, send)

    def on_start(self, run):
        from tff_pcdd.training import callbacks

        stages.leave()
        self._text = callbacks.first_text(run) or ""
        self._send_rounds("begin", run)

    def on_stage(self, run, stage):
        self._stage.enter(stage)

    def on_round(self, run, row):
        self._stage.enter("")
        from tff_pcdd.training import callbacks

        self._text = callbacks.text(run)
        self._send_rounds("round", run)

    def on_end(self, run):
        self._stage.enter("")

    def _send_rounds(self, kind: str, run: Any) -> None:
        self._send(News(self._number, kind, (run.simulation.round, run.last_round, self._text)))


class _Sender(logging.Handler):
    """Reports log messages."""

    def __init__(self, number: int, send: Callable[[News], None]):
        super().__init__()
        self._number = number
        self._send = send

    def emit(self, record: logging.LogRecord) -> None:
        try:
            # The arguments may be objects whose classes the other process does not have.
            text, place = record.getMessage(), (record.pathname, record.lineno)
        except Exception:
            self.handleError(record)
            return
        if record.exc_info:
            text = f"{text}\n{logging.Formatter().formatException(record.exc_info)}"
        sent = logging.LogRecord(record.name, record.levelno, *place, text, None, None)
        self._send(News(self._number, "log", sent))


@contextlib.contextmanager
def reported(number: int, send: Callable[[News], None]) -> Iterator[None]:
    """Reports stages and log messages that occur in the block."""
    handler = _Sender(number, send)
    logging.root.addHandler(handler)
    try:
        with stages.passed_on(lambda stage: send(News(number, "stage", stage))):
            yield
    finally:
        logging.root.removeHandler(handler)
