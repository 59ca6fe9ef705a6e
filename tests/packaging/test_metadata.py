"""What pyproject.toml and CITATION.cff state agrees with the package."""

from __future__ import annotations

import ast
import importlib.metadata
import pathlib
import re
import sys
import tomllib

import pytest
from packaging.specifiers import SpecifierSet

from tff_pcdd import _version

_ROOT = pathlib.Path(__file__).resolve().parents[2]
_PROJECT = tomllib.loads((_ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def test_citation_has_the_version():
    (version,) = re.findall(r"^version: (\S+)$", (_ROOT / "CITATION.cff").read_text(), re.M)
    assert version == _version.__version__


def test_lock_holds_every_dependency():
    locked = {name: version for name, version, _ in _locked("requirements.lock")}
    extras = _PROJECT["optional-dependencies"]
    for requirement in [*_PROJECT["dependencies"], *extras["notebooks"], *extras["dev"]]:
        name = re.split("[=<]", requirement)[0]
        assert name in locked
        assert SpecifierSet(requirement.removeprefix(name)).contains(locked[name])
    for extra in ("tracking", "ray"):
        added = {name: version for name, version, _ in _locked(f"requirements-{extra}.lock")}
        assert set(extras[extra]) <= set(added)
        # It is installed over the first lock.
        assert not set(added) & set(locked)


def test_extras_can_be_installed_together():
    tracking, ray = (
        {name: version for name, version, _ in _locked(f"requirements-{extra}.lock")}
        for extra in ("tracking", "ray")
    )
    assert all(tracking[name] == ray[name] for name in set(tracking) & set(ray))


@pytest.mark.parametrize(
    "lock",
    [
        "requirements.lock",
        "requirements-tracking.lock",
        "requirements-ray.lock",
        "serving/requirements.lock",
        "docs/requirements.lock",
        "peers/requirements-torch.lock",
        "peers/requirements-jax.lock",
    ],
)
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
    assert len(installs) == 7
    assert sum(options.startswith("$(LOCKED) -r ") for options in installs) == 6
    # One installs the project itself, with the locked setuptools.
    assert sum("--no-deps --no-build-isolation -e ." in options for options in installs) == 1
    assert re.search(r"^LOCKED = .*--no-deps --require-hashes$", makefile, re.M)
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
    declared = {re.split("[=<>]", requirement)[0] for requirement in _PROJECT["dependencies"]}
    assert distributions <= declared | _OPTIONAL
    # TensorBoard imports setuptools without declaring it.
    assert declared <= distributions | {"setuptools"}


# Imported where an extra or a dependency of TensorFlow is asked for: Keras and TensorBoard come
# with TensorFlow, gRPC and protobuf with TFF. pyarrow is the extra `parquet`.
_OPTIONAL = {"keras", "grpcio", "protobuf", "pyarrow"}
