"""The program `python -m publication`: what it refuses, before it writes anything."""

import os
import subprocess
import sys

import pytest

from benchmarks.processes import ROOT


def call(*flags):
    command = [sys.executable, "-m", "publication", *flags]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ((), "--publish_dir={}: is not a directory"),
        (("--sweep_dirs=y",), "--sweep_dirs=y: is not a directory"),
        (("--add_methods",), "--add_methods=True: needs the sweeps to add; set --sweep_dirs"),
    ],
)
def test_refusals(flags, message, tmp_path):
    directory = tmp_path / "docs"
    result = call(f"--publish_dir={directory}", *flags)
    assert result.returncode == 2
    assert result.stderr == f"publication: error: {message.format(directory)}\n"
    assert not directory.exists()
