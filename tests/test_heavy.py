"""Imports that take seconds: garbage is not collected meanwhile, and the user sees the stage."""

import gc
import subprocess
import sys
import types

import pytest

from tff_pcdd import heavy, stages


@pytest.fixture
def package(tmp_path, monkeypatch):
    """The name of a module that notes whether garbage is collected while it is imported."""
    name = "package_that_takes_seconds"
    (tmp_path / f"{name}.py").write_text("import gc\ncollects = gc.isenabled()\n")
    monkeypatch.syspath_prepend(tmp_path)
    yield name
    sys.modules.pop(name, None)


@pytest.fixture
def collects(request):
    """Whether garbage is collected before the import."""
    before = gc.isenabled()
    (gc.enable if request.param else gc.disable)()
    yield request.param
    (gc.enable if before else gc.disable)()


@pytest.mark.parametrize("collects", [True, False], indirect=True)
def test_collection_is_postponed(package, collects):
    frozen = gc.get_freeze_count()
    heavy.load(package)
    assert sys.modules[package].collects is False
    assert gc.isenabled() is collects
    # The process may belong to a program of the user's.
    assert gc.get_freeze_count() == frozen


@pytest.mark.parametrize("collects", [True], indirect=True)
def test_collection_goes_on_after_an_error(collects):
    with pytest.raises(ModuleNotFoundError):
        heavy.load("package_that_is_not_there")
    assert gc.isenabled()


def test_importing_is_a_stage_until_it_is_done(package):
    entered = []
    with stages.passed_on(entered.append):
        heavy.load(package)
        heavy.load(package)
    assert entered == [f"importing {package}"]


@pytest.mark.parametrize(
    "present, stage",
    [((), "importing TensorFlow"), (("tensorflow",), "importing TensorFlow Federated")],
)
def test_the_stage_names_what_is_not_imported_yet(monkeypatch, present, stage):
    """A comparison imports TensorFlow to check its runs, and TFF later."""
    names, entered = ("tensorflow", "tensorflow_federated"), []
    monkeypatch.setattr(heavy, "sys", types.SimpleNamespace(modules=dict.fromkeys(present)))
    monkeypatch.setattr(heavy, "importlib", types.SimpleNamespace(import_module=lambda name: None))
    with stages.passed_on(entered.append):
        heavy.load(*names)
    assert entered == [stage]


def test_a_program_collects_no_imported_objects():
    code = (
        "import atexit, gc; from tff_pcdd import heavy\n"
        # The last one that is called.
        "atexit.register(lambda: print(gc.get_freeze_count() > frozen))\n"
        # Python itself freezes what it imports before a program, from 3.12 on.
        "before = gc.get_freeze_count(); heavy.own_process()\n"
        "print(gc.get_freeze_count() - before)\n"
        "heavy.load('fractions'); frozen = gc.get_freeze_count(); print(frozen > before + 1000)\n"
        "lists = [[] for _ in range(9)]\n"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.split() == ["0", "True", "True"]
