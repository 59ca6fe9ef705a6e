"""Stages are shown by programs only, on a terminal in one line, elsewhere if they take long."""

import sys
import threading

import pytest

from tff_pcdd import stages


class Timer(threading.Thread):
    """A `threading.Timer` whose time is over when it is waited for."""

    waiting = None

    def __init__(self, _, function, args):
        super().__init__(target=function, args=args)

    def start(self):
        Timer.waiting = self

    def cancel(self):
        Timer.waiting = None


@pytest.fixture
def screen(monkeypatch, capsys):
    """Standard error, which is a terminal or is not."""
    monkeypatch.setattr(stages.threading, "Timer", Timer)

    def screen(terminal):
        monkeypatch.setattr(sys.stderr, "isatty", lambda: terminal, raising=False)
        return lambda: capsys.readouterr().err

    return screen


def wait():
    """Lets the current stage, if there is one, take so long that it is shown."""
    timer, Timer.waiting = Timer.waiting, None
    if timer:
        threading.Thread.start(timer)
        timer.join()


def test_the_library_alone_shows_nothing(screen):
    read = screen(True)
    stages.enter("loading data")
    wait()
    stages.leave()
    assert read() == ""


@pytest.mark.parametrize(
    ("terminal", "shown"),
    [
        # A stage replaces the one before.
        (True, "\r\x1b[Ktrain: loading data …\r\x1b[Ktrain: tracing …\r\x1b[K"),
        (False, "train: loading data …\ntrain: tracing …\n"),
    ],
)
def test_stages_are_shown_in_one_line_or_in_lines(terminal, shown, screen):
    read = screen(terminal)
    with stages.shown("train"):
        for stage in ("loading data", "tracing"):
            stages.enter(stage)
            wait()
    assert read() == shown


def test_a_log_has_the_stages_of_several_runs_once(screen):
    read = screen(False)
    with stages.shown("compare"):
        for method in ("fedavg", "ccvr"):
            for stage in (f"tracing {method}", "drawing pictures"):
                stages.enter(stage)
                wait()
    assert read() == "".join(
        f"compare: {stage} …\n" for stage in ("tracing fedavg", "drawing pictures", "tracing ccvr")
    )


@pytest.mark.parametrize("terminal", [True, False])
def test_short_stages_are_not_shown(terminal, screen):
    read = screen(terminal)
    with stages.shown("train"):
        stages.enter("loading data")
        stages.enter("tracing")
        stages.leave()
        wait()
    assert read() == ""
    stages.enter("later")
    wait()
    assert read() == ""
