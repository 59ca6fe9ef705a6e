"""Standard streams that are closed, full or ASCII: what was computed does not depend on them."""

import subprocess
import sys

import pytest

from tests.cli.conftest import ROOT

pytestmark = pytest.mark.integration

PARTITION = ("partition", "--num_clients=5")
TRAIN = (
    "train",
    "--model=mlp",
    "--num_clients=5",
    "--rounds=1",
    "--local_epochs=1",
    "--max_train_samples=60",
)


def redirected(redirection, *words, **options):
    """Runs a module with a shell's redirection of its streams."""
    command = ["sh", "-c", f'exec "$@" {redirection}', "sh", sys.executable, "-m", *words]
    return subprocess.run(command, cwd=ROOT, capture_output=True, timeout=300, **options)


def start(redirection, program, *flags, output_dir, **environment):
    """Runs a program with a shell's redirection of its streams."""
    env = {"PATH": "/usr/bin:/bin", "HOME": str(output_dir.parent), **environment}
    words = f"tasks.{program}", *flags, f"--output_dir={output_dir}"
    return redirected(redirection, *words, env=env)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """The directory of a run whose progress could not be shown, and its process."""
    folder = tmp_path_factory.mktemp("outputs") / "Φ"
    folder.mkdir()
    return folder / "run", start("2>/dev/full", *TRAIN, output_dir=folder / "run", PYTHONUTF8="1")


def test_progress_that_cannot_be_shown_ends_no_run(trained):
    directory, done = trained
    assert done.returncode == 0
    assert done.stdout.startswith(b"fedavg: GA ")
    assert (directory / "summary.json").exists()


@pytest.mark.rare
def test_nor_does_it_without_a_stream(tmp_path):
    done = start("2>&-", *TRAIN, output_dir=tmp_path / "run")
    assert done.returncode == 0
    assert done.stdout.startswith(b"fedavg: GA ")


@pytest.mark.parametrize(
    ("redirection", "reason", "buffer"),
    [
        (">/dev/full", b"No space left on device", {}),
        (">/dev/full", b"No space left on device", {"PYTHONUNBUFFERED": "1"}),
        (">&-", b"", {}),
    ],
    ids=["full", "full, without a buffer", "closed"],
)
def test_results_that_cannot_be_shown_are_kept(redirection, reason, buffer, tmp_path):
    done = start(redirection, *PARTITION, output_dir=tmp_path / "out", **buffer)
    assert (tmp_path / "out" / "partition.csv").exists()
    if reason:
        assert done.returncode == 1
        assert done.stderr == b"partition: error: standard output: " + reason + b"\n"
    else:
        assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.parametrize(
    "arguments", ["--help", "--version", "doctor", "completion bash", "train --help"]
)
def test_what_cannot_be_printed_is_one_line(arguments):
    done = redirected(">/dev/full", "tff_pcdd", *arguments.split())
    name = "tff-pcdd" if arguments.startswith("-") else arguments.split()[0]
    assert done.returncode == 1
    assert done.stderr.decode() == f"{name}: error: standard output: No space left on device\n"


def test_characters_that_a_stream_cannot_show_are_escaped(trained):
    """By a finished run, which is only read."""
    directory, _ = trained
    done = start("", *TRAIN, output_dir=directory, PYTHONIOENCODING="ascii", PYTHONUTF8="1")
    assert done.returncode == 0
    assert b"/\\u03a6/run\n" in done.stdout
    assert done.stdout.isascii()
