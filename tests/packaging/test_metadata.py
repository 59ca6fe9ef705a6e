"""What pyproject.toml and CITATION.cff state agrees with the package."""

from __future__ import annotations

import ast
import importlib.metadata
import pathlib
import re
import sys
import tomllib

from tff_pcdd import _version

_ROOT = pathlib.Path(__file__).resolve().parents[2]
_PROJECT = tomllib.loads((_ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def test_citation_has_the_version():
    (version,) = re.findall(r"^version: (\S+)$", (_ROOT / "CITATION.cff").read_text(), re.M)
    assert version == _version.__version__


def test_lock_holds_every_dependency():
    locked = dict(
        line.split("==") for line in (_ROOT / "requirements.lock").read_text().splitlines()
    )
    extras = _PROJECT["optional-dependencies"]
    for requirement in [*_PROJECT["dependencies"], *extras["notebooks"], *extras["dev"]]:
        name, _, version = requirement.partition("==")
        assert name in locked
        assert not version or re.fullmatch(version.replace("*", ".*"), locked[name])


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
    distributions = {provider[name][0].lower().replace("_", "-") for name in foreign}
    declared = {re.split("[=<>]", requirement)[0] for requirement in _PROJECT["dependencies"]}
    assert distributions <= declared | _OPTIONAL
    assert declared <= distributions


# Imported where an extra or a dependency of TensorFlow is asked for: Keras and TensorBoard come
# with TensorFlow, gRPC and protobuf with TFF.
_OPTIONAL = {"keras", "grpcio", "protobuf"}
