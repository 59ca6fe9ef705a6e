"""The top level of the package: what it offers, and that importing it costs next to nothing."""

from __future__ import annotations

import importlib.metadata
import subprocess
import sys

import pytest

import tff_pcdd

# Each takes from a tenth of a second to several seconds to import.
_HEAVY = {
    "dp_accounting",
    "grpc",
    "jax",
    "keras",
    "matplotlib",
    "numpy",
    "pandas",
    "scipy",
    "sklearn",
    "tensorflow",
    "tensorflow_datasets",
    "tensorflow_federated",
}


def _loaded_after(statements: str) -> set[str]:
    """The packages that are loaded in a fresh interpreter after some statements."""
    script = f"{statements}\nimport sys\nprint(*{{name.split('.')[0] for name in sys.modules}})"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return set(done.stdout.split())


@pytest.mark.parametrize(
    "statements", ["import tff_pcdd", "from tff_pcdd import DataError, SettingError"]
)
def test_the_import_is_cheap(statements):
    loaded = _loaded_after(statements)
    assert "tff_pcdd" in loaded
    assert loaded & _HEAVY == set()


def test_dir_needs_no_heavy_package():
    assert _loaded_after("import tff_pcdd\nassert dir(tff_pcdd)") & _HEAVY == set()


def test_names_and_settings_need_no_tensorflow():
    """Of all components, so that --help answers at once and refusals do."""
    loaded = _loaded_after(
        "from tff_pcdd.settings import describe, registries\n"
        "from tff_pcdd.training import ExperimentConfig, RunOptions\n"
        "found = [each for cls in (ExperimentConfig, RunOptions) for each in registries(cls)]\n"
        "assert len(found) >= 12\n"
        "for registry in found:\n"
        "    described = [describe(cls) for cls in registry.classes().values()]\n"
        "    assert described and registry.names() or registry.setting == 'callbacks'\n"
        "ExperimentConfig.from_settings(model='efficientnet_b0', algorithm='fedgela')\n"
        "assert describe(ExperimentConfig) and describe(RunOptions)\n"
        "from tff_pcdd.federated import SGD, Aggregator, TrainingSpec"
    )
    assert loaded & (_HEAVY - {"numpy"}) | loaded & {"ray"} == set()


@pytest.mark.parametrize("name", tff_pcdd.__all__)
def test_public_names_resolve(name):
    assert getattr(tff_pcdd, name) is not None


def test_a_star_import_gives_the_public_names():
    names: dict[str, object] = {}
    exec("from tff_pcdd import *", names)
    assert set(tff_pcdd.__all__) <= set(names)


def test_dir_lists_the_public_names():
    assert dir(tff_pcdd) == sorted(tff_pcdd.__all__)
    assert len(set(tff_pcdd.__all__)) == len(tff_pcdd.__all__)


def test_functions_hide_no_module():
    """`studies.sweep` and the like are the functions, however the modules were imported."""
    for name in ("compare", "evaluate_run", "export_run", "load_federation", "run_experiment"):
        assert callable(getattr(tff_pcdd, name))
    assert callable(tff_pcdd.sweep)


def test_unknown_names_raise():
    with pytest.raises(AttributeError, match="'tff_pcdd' has no attribute 'fedavg'"):
        _ = tff_pcdd.fedavg


def test_the_version_is_that_of_the_distribution():
    assert tff_pcdd.__version__ == importlib.metadata.version("tff_pcdd")
