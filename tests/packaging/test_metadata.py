"""What pyproject.toml and CITATION.cff state agrees with the package."""

from __future__ import annotations

import ast
import importlib.metadata
import pathlib
import re
import sys
import tomllib

import pytest
from packaging.requirements import Requirement

from tff_pcdd import _version, methods, stack

_ROOT = pathlib.Path(__file__).resolve().parents[2]
_PYPROJECT = tomllib.loads((_ROOT / "pyproject.toml").read_text(encoding="utf-8"))
_PROJECT = _PYPROJECT["project"]
_LOCKS = sorted(
    str(path.relative_to(_ROOT))
    for folder in (".", "docs", "peers", "serving")
    for path in (_ROOT / folder).glob("requirements*.lock")
)


# The extras whose packages the tests need, and requirements.lock holds.
_IN_LOCK = ("notebooks", "dev", "parquet", "xlsx", "dicom")


def test_citation_has_the_version():
    (version,) = re.findall(r"^version: (\S+)$", (_ROOT / "CITATION.cff").read_text(), re.M)
    assert version == _version.__version__


def test_the_description_counts_the_methods():
    """As README does: without baselines, and without the names with FedMR's prototypes."""
    own = [cls for cls in methods.registry.classes().values() if cls.__module__.startswith("tff_")]
    number = sum(not cls.baseline and not cls.name.endswith("_prototypes") for cls in own)
    assert f"FedGELA, FedMR, FedLoGe and {number - 3} others" in _PROJECT["description"]
    assert f"compares [{number} methods]" in (_ROOT / "README.md").read_text(encoding="utf-8")


def test_lock_holds_every_dependency():
    locked = {name: version for name, version, _ in _locked("requirements.lock")}
    extras = _PROJECT["optional-dependencies"]
    federated = _PYPROJECT["dependency-groups"]["federated"]
    tested = [text for extra in _IN_LOCK for text in extras[extra]]
    for text in [*_PROJECT["dependencies"], *tested, *federated]:
        requirement = Requirement(text)
        # The build for processors; requirements-gpu.lock replaces it.
        name = {"tensorflow": "tensorflow-cpu"}.get(requirement.name, requirement.name)
        assert requirement.specifier.contains(locked[name]), name
    for extra in ("tracking", "ray"):
        added = {name: version for name, version, _ in _locked(f"requirements-{extra}.lock")}
        assert set(extras[extra]) <= set(added)
        # It is installed over the first lock.
        assert not set(added) & set(locked)


def test_both_builds_of_tensorflow_have_one_version():
    gpu = {name: version for name, version, _ in _locked("requirements-gpu.lock")}
    locked = {name: version for name, version, _ in _locked("requirements.lock")}
    assert gpu["tensorflow"] == locked["tensorflow-cpu"]
    assert not set(gpu) & set(locked)
    assert {name.split("-")[0] for name in gpu} == {"nvidia", "tensorflow"}


def test_supported_versions_are_those_of_the_check_at_the_import():
    (lowest, highest), (first, last) = stack.PYTHON, stack.TENSORFLOW
    assert _PROJECT["requires-python"] == f">={lowest[0]}.{lowest[1]},<3.{highest[1] + 1}"
    pythons = re.findall(r"Python :: (3\.\d+)", "\n".join(_PROJECT["classifiers"]))
    assert pythons == [f"3.{minor}" for minor in range(lowest[1], highest[1] + 1)]
    for name in ("tensorflow", "tf-keras"):
        assert f"{name}>=2.{first[1]},<2.{last[1] + 1}" in _PROJECT["dependencies"]
    group = _PYPROJECT["dependency-groups"]["federated"]
    assert group == ["==".join(pair) for pair in stack.FEDERATED.items()]
    # uv resolves them as if they had no dependencies.
    assert _PYPROJECT["tool"]["uv"]["dependency-metadata"] == [
        {"name": name, "version": version, "requires-dist": []}
        for name, version in stack.FEDERATED.items()
    ]


def test_extras_can_be_installed_together():
    tracking, ray = (
        {name: version for name, version, _ in _locked(f"requirements-{extra}.lock")}
        for extra in ("tracking", "ray")
    )
    assert all(tracking[name] == ray[name] for name in set(tracking) & set(ray))


@pytest.mark.parametrize("lock", _LOCKS)
def test_every_file_that_is_installed_is_checked(lock):
    packages = _locked(lock)
    assert packages
    for name, _, hashes in packages:
        assert hashes, f"{name} has no hash"
        assert all(re.fullmatch("[0-9a-f]{64}", digest) for digest in hashes), name
    assert "://" not in (_ROOT / lock).read_text()


def test_installing_requires_the_hashes():
    makefile = (_ROOT / "Makefile").read_text()
    installs = re.findall("pip install (.+)", makefile)
    locked = [options for options in installs if options.startswith("$(LOCKED) -r ")]
    assert len(locked) == len(installs) - 1 >= 7
    # One installs the project itself, with the locked setuptools.
    assert sum("--no-deps --no-build-isolation -e ." in options for options in installs) == 1
    assert re.search(
        r"^LOCKED = .*--no-deps --ignore-requires-python --require-hashes$", makefile, re.M
    )
    names = [name for name, _, _ in _locked("requirements.lock")]
    assert "setuptools" in names


def _locked(lock):
    """Name, version and SHA-256 digests of the packages in a lock."""
    text = (_ROOT / lock).read_text().replace("\\\n", "")
    pinned = [line.split() for line in text.splitlines() if line and not line.startswith("#")]
    return [
        (*package.split("=="), [option.removeprefix("--hash=sha256:") for option in options])
        for package, *options in pinned
    ]


def test_dependencies_are_what_is_imported():
    provider = importlib.metadata.packages_distributions()
    imported = set()
    for path in (_ROOT / "tff_pcdd").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                imported.update(alias.name.split(".")[0] for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and not node.level:
                imported.add(node.module.split(".")[0])
    foreign = imported - set(sys.stdlib_module_names) - {"tff_pcdd"}
    # The extras `tracking` and `ray` contain these.
    installed = foreign - {"mlflow", "wandb", "ray"}
    distributions = {provider[name][0].lower().replace("_", "-") for name in installed}
    distributions = {name.removesuffix("-cpu") for name in distributions}
    declared = {Requirement(text).name for text in _PROJECT["dependencies"]}
    assert distributions <= declared | set(stack.FEDERATED) | _OPTIONAL
    assert declared <= distributions | _OF_OTHERS


# The extras `parquet`, `xlsx` and `dicom`.
_OPTIONAL = {"pyarrow", "openpyxl", "pydicom"}


# What TFF and its neighbors import, since they are installed without their dependencies, and what
# TensorFlow imports by its own names: `tf.keras` and `tf.summary`.
_OF_OTHERS = {
    *("attrs", "cachetools", "ml-dtypes", "portpicker", "protobuf", "setuptools"),
    *("six", "tensorboard", "tensorflow-probability", "tf-keras", "typing-extensions"),
}
