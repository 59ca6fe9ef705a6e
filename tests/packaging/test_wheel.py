"""The wheel holds the package and nothing else, and its commands run where no clone is."""

from __future__ import annotations

import json
import os
import pathlib
import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile

import pytest

pytestmark = pytest.mark.slow

_ROOT = pathlib.Path(__file__).resolve().parents[2]

_TINY = (
    "--dataset=digits",
    "--model=mlp",
    "--num_clients=5",
    "--max_train_samples=200",
    "--max_test_samples=60",
    "--rounds=1",
    "--local_epochs=1",
)


def _run(command, **arguments):
    """Runs a command, with its output in the message of a failure."""
    result = subprocess.run(
        [str(part) for part in command], capture_output=True, text=True, check=False, **arguments
    )
    assert result.returncode == 0, f"{command}\n{result.stdout}\n{result.stderr}"
    return result.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """The wheel, built from a copy, since setuptools packs what earlier builds left behind."""
    source = tmp_path_factory.mktemp("source")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(_ROOT / name, source)
    # Beside the package, what must not be packed.
    for name in ("tff_pcdd", "tasks", "tests"):
        ignore = shutil.ignore_patterns("__pycache__", "*.egg-info")
        shutil.copytree(_ROOT / name, source / name, ignore=ignore)
    out = tmp_path_factory.mktemp("wheel")
    options = ("--no-deps", "--no-build-isolation", "--no-index", f"--wheel-dir={out}")
    _run([sys.executable, "-m", "pip", "wheel", *options, source])
    (path,) = out.glob("*.whl")
    return path


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory):
    """The `bin` of a new environment with the wheel and the dependencies of this one."""
    directory = tmp_path_factory.mktemp("environment")
    venv.create(directory, symlinks=True, with_pip=False)
    binaries = directory / "bin"
    pip = [sys.executable, "-m", "pip", f"--python={binaries / 'python'}"]
    _run([*pip, "install", "--no-deps", "--no-index", wheel])
    # This environment's packages become importable, but the clone does not: Python ignores .pth
    # files, such as that of an editable install, in a directory that another .pth file adds.
    (site_packages,) = directory.glob("lib/python*/site-packages")
    paths = sorted({sysconfig.get_path("purelib"), sysconfig.get_path("platlib")})
    (site_packages / "dependencies.pth").write_text("\n".join(paths) + "\n")
    return binaries


@pytest.fixture(scope="module")
def command(installed, tmp_path_factory):
    """Runs an installed command in a directory that was empty."""
    directory = tmp_path_factory.mktemp("empty")
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}

    def call(name, *arguments):
        _run([installed / name, *arguments], cwd=directory, env=environment)
        return directory

    return call


def test_wheel_installs_only_the_package(wheel):
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    top_level = {name.split("/")[0] for name in names}
    assert {name for name in top_level if not name.endswith(".dist-info")} == {"tff_pcdd"}
    assert "tff_pcdd/py.typed" in names
    assert any(name.endswith("licenses/LICENSE") for name in names)


def test_wheel_holds_every_module(wheel):
    with zipfile.ZipFile(wheel) as archive:
        packed = {name for name in archive.namelist() if name.endswith(".py")}
    assert packed == {str(path.relative_to(_ROOT)) for path in (_ROOT / "tff_pcdd").rglob("*.py")}


def test_wheel_holds_the_pages_of_reports(wheel):
    with zipfile.ZipFile(wheel) as archive:
        packed = {name for name in archive.namelist() if "/templates/" in name}
    found = (_ROOT / "tff_pcdd").glob("*/templates/*")
    assert packed == {str(path.relative_to(_ROOT)) for path in found}
    assert len(packed) > 1


def test_package_is_imported_from_the_wheel(installed, tmp_path):
    code = """
import importlib.metadata, importlib.util, json, tff_pcdd
print(json.dumps({
    "file": tff_pcdd.__file__,
    "version": tff_pcdd.__version__,
    "metadata": importlib.metadata.version("tff_pcdd"),
    "tasks": importlib.util.find_spec("tasks") is not None,
}))
"""
    found = json.loads(_run([installed / "python", "-c", code], cwd=tmp_path))
    assert pathlib.Path(found["file"]).is_relative_to(installed.parent)
    assert found["version"] == found["metadata"]
    assert not found["tasks"]


@pytest.fixture(scope="module")
def trained(command):
    return command("tff-pcdd", "train", "--algorithm=fedgela", *_TINY, "--output_dir=run")


def test_train(trained):
    directory = trained
    summary = json.loads((directory / "run" / "summary.json").read_text())
    assert 0 <= summary["ga_final"] <= 100
    assert (directory / "run" / "report.html").is_file()


# It imports what training does, and no further files of the package.
@pytest.mark.rare
def test_export(command, trained):
    directory = trained
    command("tff-pcdd", "export", "--run_dir=run", "--export_dir=out", "--clients=1")
    for name in ("global", "personal/1"):
        assert (directory / "out" / name / "1" / "saved_model.pb").is_file()


@pytest.mark.rare
def test_compare(command):
    flags = ("--algorithms=fedavg,fedgela", *_TINY, "--projection_dim=16")
    directory = command("tff-pcdd", "compare", *flags, "--output_dir=comparison")
    rows = (directory / "comparison" / "comparison.csv").read_text().splitlines()
    assert len(rows) == 3
    assert (directory / "comparison" / "comparison.png").is_file()


@pytest.mark.parametrize("name", ["partition", "sweep", "evaluate", "report", "doctor"])
def test_other_commands_start(command, name):
    command("tff-pcdd", name, "--help")
