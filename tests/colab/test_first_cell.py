"""The first cell of the notebooks installs what is missing, and nothing else.

It runs as on Colab, in an environment with TensorFlow but without this package and TFF. A stand-in
for pip notes what it should install, and makes that importable; nothing is downloaded.
"""

import json
import os
import pathlib
import re
import subprocess
import sysconfig
import venv

import nbformat
import pytest

from colab import execute
from tff_pcdd import stack

pytestmark = pytest.mark.slow

_ROOT = pathlib.Path(__file__).resolve().parents[2]
_MISSING = ("tff_pcdd", "__editable__", *(name.replace("-", "_") for name in stack.FEDERATED))

_PIP = f"""
import json, os, pathlib, sys

packages = pathlib.Path(__file__).resolve().parents[1]
with open(packages / "calls", "a") as calls:
    print(json.dumps(sys.argv[1:]), file=calls)
if "--no-deps" in sys.argv:
    for path in pathlib.Path({sysconfig.get_path("purelib")!r}).glob("tensorflow_*"):
        if not (packages / path.name).exists():
            (packages / path.name).symlink_to(path)
else:
    (packages / "tff_pcdd").symlink_to({str(_ROOT / "tff_pcdd")!r})
"""

# Twice, as the cell may run again.
_CELLS = """
{cell}
{cell}
import json
import tensorflow as tf
import tensorflow_federated as tff
found = {{
    "federated": tff.__version__,
    "keras": tf.keras.layers.Layer.__module__.split(".")[0],
    "gpus": os.environ.get("CUDA_VISIBLE_DEVICES"),
}}
print(json.dumps(found))
"""


@pytest.fixture
def python(tmp_path):
    """The interpreter of an environment in which what the cell installs is missing."""
    venv.create(tmp_path / "environment", symlinks=True, with_pip=False)
    (packages,) = (tmp_path / "environment").glob("lib/python*/site-packages")
    for directory in {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}:
        for path in pathlib.Path(directory).iterdir():
            if not path.name.startswith((*_MISSING, "pip")):
                (packages / path.name).symlink_to(path)
    (packages / "pip").mkdir()
    (packages / "pip" / "__main__.py").write_text(_PIP, encoding="utf-8")
    return tmp_path / "environment" / "bin" / "python"


@pytest.fixture
def run(python, tmp_path):
    """Runs code in IPython; returns what it prints and what pip is called with."""
    (tmp_path / "empty").mkdir()

    def call(code, **variables):
        file = tmp_path / "cells.ipy"
        file.write_text(code, encoding="utf-8")
        kept = {
            name: value
            for name, value in os.environ.items()
            if name not in ("PYTHONPATH", "TF_USE_LEGACY_KERAS", "TF_CPP_MIN_LOG_LEVEL")
        }
        done = subprocess.run(
            [python, "-m", "IPython", "--colors=NoColor", file],
            cwd=tmp_path / "empty",
            env={**kept, "IPYTHONDIR": str(tmp_path / "ipython"), **variables},
            capture_output=True,
            text=True,
        )
        calls = next(python.parents[1].glob("lib/python*/site-packages")) / "calls"
        asked = calls.read_text(encoding="utf-8").splitlines() if calls.exists() else []
        return done.stdout, done.stderr, [json.loads(line) for line in asked]

    return call


@pytest.fixture(scope="module")
def cell():
    """The first code cell of all notebooks."""
    notebook = nbformat.read(min(execute.FOLDER.glob("*.ipynb")), as_version=4)
    return next(cell.source for cell in notebook.cells if cell.cell_type == "code")


@pytest.mark.parametrize(
    "source",
    [
        pytest.param(None, id="repository"),
        pytest.param("/a folder/tff_pcdd.whl", id="wheel", marks=pytest.mark.rare),
    ],
)
def test_it_installs_once_and_everything_fits(cell, source, run):
    variables = {} if source is None else {"TFF_PCDD_SOURCE": source}
    printed, errors, asked = run(
        _CELLS.format(cell=cell).replace("com/OWNER", "com/user"), **variables
    )
    assert errors == ""
    assert json.loads(printed.splitlines()[-1]) == {
        "federated": stack.FEDERATED["tensorflow-federated"],
        "keras": "tf_keras",
        "gpus": os.environ.get("CUDA_VISIBLE_DEVICES"),
    }
    first, second = asked
    address = re.search(r"^REPOSITORY := (.+)$", (_ROOT / "Makefile").read_text(), re.M)[1]
    assert first == ["install", "--quiet", source or f"git+{address.replace('OWNER', 'user')}"]
    assert second == [*stack.INSTALL.removeprefix("pip ").split(), "--quiet"]


@pytest.mark.parametrize("in_clone", [True, False])
def test_it_installs_the_clone_or_says_that_it_knows_no_address(in_clone, cell, run, tmp_path):
    """Where `make address` has not been called, nothing is asked of github.com/OWNER."""
    if in_clone:
        (tmp_path / "tff_pcdd").mkdir()
        (tmp_path / "tff_pcdd" / "stack.py").touch()
    printed, errors, asked = run(cell.replace("github.com/user", "github.com/OWNER"))
    if in_clone:
        assert asked[0] == ["install", "--quiet", ".."]
    elif "OWNER" in cell:
        assert asked == []
        assert "set TFF_PCDD_SOURCE to a clone" in printed + errors


# What is reported is in tests/test_stack.
@pytest.mark.rare
def test_keras_3_that_is_loaded_is_reported(cell, run):
    keras_3 = "import tensorflow as tf; tf.keras.layers.Dense(3)\n"
    _, errors, _ = run(keras_3 + cell, TFF_PCDD_SOURCE=".")
    reported = [line for line in errors.splitlines() if line.startswith("tff_pcdd: ")]
    assert len(reported) == 1
    assert "Keras 3" in reported[0] and "import tff_pcdd first" in reported[0]
