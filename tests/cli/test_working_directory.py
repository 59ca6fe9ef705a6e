"""Modules in the working directory are not imported by the programs, unless a flag names them."""

import os
import subprocess
import sys

import pytest

from tests import support
from tests.attacks import clone_beside_hostile_modules
from tests.cli.conftest import ROOT

pytestmark = pytest.mark.integration


@pytest.fixture
def hostile(tmp_path):
    """A working directory with the clone and with modules of nearly every name, and their trace."""
    return clone_beside_hostile_modules(tmp_path)


def _run(folder, *arguments):
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    command = [sys.executable, "-m", *arguments]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    return done.returncode, done.stdout, done.stderr


# A run of tasks.train is below.
@pytest.mark.parametrize(
    "program", support.rare_but(["tff_pcdd.cli.train"], ["tasks.train", "tff_pcdd.cli.train"])
)
def test_modules_beside_a_clone_are_not_imported(program, hostile):
    folder, trace = hostile
    status, out, err = _run(folder, program, "--dry_run", "--output_dir=run")
    assert not trace.exists()
    assert status == 0, err
    assert out.startswith("fedavg")


def test_nor_by_a_run(hostile):
    folder, trace = hostile
    size = (
        "--model=mlp",
        "--rounds=1",
        "--local_epochs=1",
        "--max_train_samples=20",
        "--num_clients=5",
    )
    status, _, err = _run(folder, "tasks.train", "--noprogress", *size, "--output_dir=run")
    assert not trace.exists()
    assert status == 0, err
    assert (folder / "run" / "summary.json").exists()


@pytest.mark.rare
def test_nor_by_runs_at_the_same_time(hostile):
    folder, trace = hostile
    size = ("--rounds=1", "--local_epochs=1", "--max_train_samples=20", "--num_clients=5")
    flags = (*size, "--noprogress", "--noreport", "--parallel_runs=2", "--output_dir=runs")
    status, _, err = _run(folder, "tasks.compare", "--algorithms=fedavg,fedprox", *flags)
    assert not trace.exists()
    assert status == 0, err
    assert (folder / "runs" / "comparison.md").exists()


@pytest.mark.parametrize("option", [["-m", "mylab.train"], ["-ummylab.train"]])
def test_programs_of_others_keep_their_directory(option, tmp_path):
    """Also if their package imports this one while the program is looked for."""
    (tmp_path / "mylab").mkdir()
    (tmp_path / "mylab" / "__init__.py").write_text("import tff_pcdd\n")
    (tmp_path / "mylab" / "train.py").write_text("import helpers\nprint(helpers.VALUE)\n")
    (tmp_path / "helpers.py").write_text("VALUE = 7\n")
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, *option, "tff_pcdd"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.stdout == "7\n", done.stderr


def test_options_of_python_may_stand_before_the_program(hostile):
    folder, trace = hostile
    command = [sys.executable, "-X", "utf8", "-umtff_pcdd.cli.train", "--version"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert not trace.exists()
    assert done.returncode == 0, done.stderr


def test_the_package_comes_from_the_clone(hostile, tmp_path):
    """Not from the working directory, if the clone is elsewhere on the module path."""
    folder, trace = hostile
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "tff_pcdd").mkdir()
    (elsewhere / "tff_pcdd" / "__init__.py").write_text((folder / "json.py").read_text())
    (elsewhere / "numpy.py").write_text((folder / "json.py").read_text())
    command = [sys.executable, "-m", "tasks.train", "--dry_run", "--output_dir=run"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=elsewhere, env=environment, capture_output=True, text=True)
    assert not trace.exists()
    assert done.returncode == 0, done.stderr


def test_a_module_that_a_flag_names_is_imported(hostile):
    folder, trace = hostile
    (folder / "my_module.py").write_text(
        "import dataclasses, my_helper, my_package.part\n"
        "from tff_pcdd.data import partitions\n"
        "@partitions.register\n@dataclasses.dataclass(frozen=True)\n"
        "class Mine(partitions.NumClients):\n    name = 'mine'\n"
    )
    (folder / "my_helper.py").write_text("import my_other")
    (folder / "my_other.py").write_text("")
    (folder / "my_package").mkdir()
    (folder / "my_package" / "part.py").write_text("import my_other, tensorflow")
    flags = ("--import=my_module", "--partition=mine", "--dry_run", "--output_dir=run")
    status, out, err = _run(folder, "tasks.train", *flags)
    assert not trace.exists()
    assert status == 0, err
    assert "mine" in out
