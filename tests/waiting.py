"""Waiting for what other processes do."""

import pathlib
import subprocess
import time

import pytest

# Seconds after which nobody expects a condition to hold any more, however busy the machine is.
_LONGEST = 300


def until(condition, program=None):
    """Waits until a condition holds; the test fails at once if the program for it has ended.

    Args:
        condition: a function; it holds when the result is true, which is returned.
        program: a `Popen` without whose process the condition cannot hold.
    """
    deadline = time.monotonic() + _LONGEST
    while True:
        # Looked at first: the last that a program does may fulfill the condition.
        has_ended = program is not None and program.poll() is not None
        if found := condition():
            return found
        if has_ended:
            pytest.fail(f"ended with status {program.returncode}:\n{_errors(program)}")
        if time.monotonic() > deadline:
            pytest.fail(f"does not hold after {_LONGEST} s")
        time.sleep(0.01)


def until_ended(*pids):
    """Waits until no process with one of these ids runs."""
    until(lambda: not any(map(runs, pids)))


def runs(pid):
    """Whether a process runs; the first process of a container does not always reap zombies."""
    try:
        stat = pathlib.Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


def _errors(program):
    """What a program that has ended wrote to standard error, which others may still hold open."""
    try:
        return program.communicate(timeout=2)[1]
    except subprocess.TimeoutExpired as expired:
        return (expired.stderr or b"").decode()
