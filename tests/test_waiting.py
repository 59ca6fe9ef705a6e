"""Tests that wait for a program fail at once, and say why, when the program has ended."""

import subprocess
import sys

import pytest

from tests import waiting


def _start(code):
    return subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def test_the_errors_of_a_program_that_has_ended_are_shown():
    # Another process keeps its standard error open.
    child = "import subprocess, sys; subprocess.Popen(['sleep', '20'])"
    for code in ("import sys; ", f"{child}; "):
        with (
            _start(f"{code}sys.exit('it is broken')") as program,
            pytest.raises(pytest.fail.Exception, match=r"status 1:\nit is broken"),
        ):
            waiting.until(lambda: False, program)


def test_what_a_program_does_last_is_seen(tmp_path):
    path = tmp_path / "file"
    with _start(f"open({str(path)!r}, 'w').close()") as program:
        assert waiting.until(path.exists, program)
        program.wait()
        assert waiting.until(path.exists, program)


def test_a_process_that_nobody_has_waited_for_does_not_run():
    with _start("input()") as program:
        assert waiting.runs(program.pid)
        program.kill()
        waiting.until_ended(program.pid)
    assert not waiting.runs(program.pid)
