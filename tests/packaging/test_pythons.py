"""The lock holds what every supported Python needs, not only the one that runs the tests."""

from __future__ import annotations

import os
import pathlib
import shutil
import subprocess
import sys

import pytest

from tff_pcdd import stack

pytestmark = pytest.mark.slow

_ROOT = pathlib.Path(__file__).resolve().parents[2]
_OTHERS = [
    f"3.{minor}"
    for minor in range(stack.PYTHON[0][1], stack.PYTHON[1][1] + 1)
    if minor != sys.version_info[1]
]
_RUN = ("--rounds=1", "--num_clients=5", "--local_epochs=1", "--output_dir=run")
_METHODS = ("fedgela", "fedmr", "fedloge")
_CONTRACT = ("test_rounds_are_finite", "test_two_and_two_rounds_are_four", "test_evaluation_counts")


def _interpreter(version: str) -> str | None:
    """A Python of this version that starts: on PATH, or one that pyenv has installed."""
    root = pathlib.Path(os.environ.get("PYENV_ROOT") or pathlib.Path.home() / ".pyenv")
    name = f"python{version}"
    for path in (shutil.which(name), *sorted(root.glob(f"versions/{version}.*/bin/{name}"))):
        # A shim of pyenv's is on PATH, and fails, if its version is not selected.
        if (
            path
            and not subprocess.run([path, "-c", ""], capture_output=True, check=False).returncode
        ):
            return str(path)
    return None


@pytest.fixture(scope="module", params=_OTHERS)
def run(request, tmp_path_factory):
    """Runs the Python of a new environment with the locked versions, in a directory of its own."""
    interpreter = _interpreter(request.param)
    if interpreter is None:
        pytest.skip(f"there is no python{request.param} that starts")
    folder = tmp_path_factory.mktemp(f"python{request.param}")
    environment = {name: text for name, text in os.environ.items() if name != "PYTHONPATH"}

    def call(*arguments, cwd=folder, program=folder / ".venv" / "bin" / "python"):
        command = [str(program), *map(str, arguments)]
        done = subprocess.run(
            command, cwd=cwd, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    call("-m", "venv", ".venv", program=interpreter)
    # As in the Makefile, but without compiling what is never imported.
    pip = ("-m", "pip", "install", "--quiet", "--no-deps", "--no-compile")
    lock = ("--ignore-requires-python", "--require-hashes", "-r", _ROOT / "requirements.lock")
    call(*pip, *lock)
    source = folder / "source"
    source.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(_ROOT / name, source)
    shutil.copytree(_ROOT / "tff_pcdd", source / "tff_pcdd")
    call(*pip, "--no-build-isolation", source)
    return call


@pytest.mark.rare
def test_lock_is_enough_to_train_and_export(run):
    found = run(
        "-c", "import sys, tff_pcdd; print(sys.version_info[:2] < (3, 14), tff_pcdd.__file__)"
    )
    assert found.startswith("True") and "site-packages" in found
    run("-m", "tff_pcdd.cli.train", "--algorithm=fedgela", *_RUN)
    run("-m", "tff_pcdd.cli.export", "--run_dir=run", "--export_dir=out", "--clients=0")
    load = (
        "import tensorflow as tf; "
        "model = tf.saved_model.load('out/personal/0/1').signatures['serving_default']; "
        "print(model(images=tf.zeros([2, 8, 8, 1], tf.uint8))['probabilities'].shape)"
    )
    assert run("-c", load).strip() == "(2, 10)"


@pytest.mark.rare
def test_contract_of_methods(run):
    names = [f"tests/methods/test_contract.py::{test}[{m}]" for test in _CONTRACT for m in _METHODS]
    options = ("-p", "no:cacheprovider", "-p", "no:xdist")
    assert f"{len(names)} passed" in run("-m", "pytest", *options, *names, cwd=_ROOT)


@pytest.mark.parametrize("version", ["3.10", "3.14"])
def test_other_pythons_are_refused_in_one_line(version):
    interpreter = _interpreter(version)
    if interpreter is None:
        pytest.skip(f"there is no python{version} that starts")
    command = [interpreter, "-m", "tasks.train", "--help"]
    done = subprocess.run(command, cwd=_ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    assert f"this is Python {version}." in line and "needs 3.11 to 3.13" in line
