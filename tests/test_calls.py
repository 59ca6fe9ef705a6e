"""Records of calls: what is written, also when a call fails or the disk is full."""

import collections
import errno
import json
import subprocess
import sys

import pytest

from tff_pcdd import calls, files
from tff_pcdd.errors import DamagedFileError, WriteError


def records(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_call_has_a_line_at_its_begin_and_one_at_its_end(tmp_path):
    path = tmp_path / "new" / "calls.jsonl"
    with calls.recorded(path, ["--rounds=3"], resumed=False):
        (started,) = records(path)
    assert (started["arguments"], started["resumed"]) == (["--rounds=3"], False)
    assert started["cores"] >= 1
    with pytest.raises(KeyboardInterrupt), calls.recorded(path, []):
        raise KeyboardInterrupt
    first, ended, second, interrupted = records(path)
    assert (first, ended["completed"], interrupted["completed"]) == (started, True, False)
    assert ended["process"] == started["process"] == second["process"]
    assert ended["seconds"] >= 0


def test_a_call_that_starts_again_forgets_the_earlier_ones(tmp_path):
    path = tmp_path / "calls.jsonl"
    for anew in (False, True):
        with calls.recorded(path, [f"--anew={anew}"], anew=anew):
            pass
    started, _ = records(path)
    assert started["arguments"] == ["--anew=True"]


def test_calls_at_the_same_time_keep_the_lines_of_each_other(tmp_path):
    """Four processes with 25 calls each."""
    path = tmp_path / "calls.jsonl"
    program = (
        "import pathlib, sys; from tff_pcdd import calls; calls.describe_machine = lambda: "
        "dict.fromkeys(calls._MACHINE)\n"
        "for call in range(25):\n"
        "    with calls.recorded(pathlib.Path(sys.argv[1]), [str(call)]): pass"
    )
    command = [sys.executable, "-c", program, str(path)]
    processes = [subprocess.Popen(command) for _ in range(4)]
    assert [process.wait() for process in processes] == [0] * 4
    written = records(path)
    assert sorted(int(c["arguments"][0]) for c in written if "started" in c) == sorted(
        [*range(25)] * 4
    )
    ended = collections.Counter(c["process"] for c in written if "ended" in c)
    assert sorted(ended.values()) == [25] * 4


def test_the_error_of_a_call_is_not_hidden_by_a_full_disk(monkeypatch, tmp_path):
    path = tmp_path / "calls.jsonl"

    def full(path, text):
        raise WriteError(errno.ENOSPC, "No space left on device", str(path))

    with pytest.raises(ArithmeticError), calls.recorded(path, []):
        monkeypatch.setattr(files, "append_text", full)
        raise ArithmeticError
    assert len(records(path)) == 1
    with pytest.raises(WriteError), calls.recorded(path, []):
        pytest.fail("the call has begun without a record")


def test_calls_have_what_they_recorded_at_their_end(tmp_path):
    path = tmp_path / "calls.jsonl"
    path.write_text(
        '{"started": "1", "process": "a"}\n{"started": "2", "process": "b"}\n'
        '{"ended": "3", "process": "a", "seconds": 7.5}\n'
    )
    assert calls.read(path) == [{"started": "1", "ended": "3", "seconds": 7.5}, {"started": "2"}]


@pytest.mark.parametrize("line", ['"ended"', '["ended"]', '["started"]', "1", "null", "{}", "{"])
def test_a_line_that_is_no_record_is_refused(line, tmp_path):
    path = tmp_path / "calls.jsonl"
    path.write_text(f'{{"started": "1", "process": "a"}}\n{line}\n')
    with pytest.raises(DamagedFileError, match=r"calls\.jsonl is damaged"):
        calls.read(path)
