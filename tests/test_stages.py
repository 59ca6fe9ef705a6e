"""Stages are shown by programs only, on a terminal in one line, elsewhere if they take long."""

import sys
import time

import pytest

from tff_pcdd import stages


@pytest.fixture
def screen(monkeypatch, capsys):
    """Standard error, which is a terminal or is not; a stage is shown after a short time."""
    monkeypatch.setattr(stages, "_DELAY", 0.05)

    def screen(terminal):
        monkeypatch.setattr(sys.stderr, "isatty", lambda: terminal, raising=False)
        return lambda: capsys.readouterr().err

    return screen


def wait():
    """Waits until the current stage has been shown, if there is one."""
    timer = stages._display and stages._display._timer
    if timer:
        timer.join(10)
    else:
        time.sleep(0.1)


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
