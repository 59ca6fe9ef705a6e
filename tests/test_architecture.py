"""The structure of the package, read from its source: who imports whom, and what stays where.

Nothing is imported here. An import counts as of a module where it stands at its top level, in
classes and in `try`; imports in functions, under `TYPE_CHECKING` and in `epy.lazy_imports()` happen
later or never, so they cannot make a cycle.
"""

from __future__ import annotations

import ast
import dataclasses
import functools
import graphlib
import pathlib
import re
from collections.abc import Iterator

import pytest

_PACKAGE = pathlib.Path(__file__).resolve().parents[1] / "tff_pcdd"

# From top to bottom: a part of the package imports only from lines below its own.
_LAYERS = [
    {"cli"},
    {"report"},
    {"studies", "export"},
    {"results"},
    {"training"},
    {"findings"},
    {"experiment"},
    {"diagnostics", "evaluation"},
    {"federated"},
    {"methods", "models", "runtime"},
    {"realignment", "layers"},
    {"losses"},
    {"tables"},
    {"data"},
    {"registry"},
    {"settings"},
    {"calls"},
    {"directories"},
    {"files"},
    {"heavy"},
    {"stack"},
    {"other_names", "text"},
    {
        "draws",
        "errors",
        "machine",
        "measures",
        "modules",
        "outputs",
        "stages",
        "_version",
    },
]
# What simulations, runs and federations show through parts above their own: a method hands the
# object to a function of such a module, which it imports when it is called.
_SHOWN_FROM_ABOVE = {
    ("data.federation", "report.notebook"),
    ("experiment.simulation", "export.live"),
    ("experiment.simulation", "training.clients_table"),
    ("training.run", "export"),
    ("training.run", "report"),
    ("training.run", "report.notebook"),
    ("training.start", "report.writing"),
}
_RANK = {part: rank for rank, parts in enumerate(_LAYERS) for part in parts}

# Private modules of the whole package: its version, and what is not public in TensorFlow.
_PRIVATE_FOR_ALL = {"_version", "runtime._tf_private"}

# Plain TensorFlow, which can be read with the paper in hand.
_WITHOUT_TFF = {"methods", "layers", "losses", "realignment", "models", "evaluation", "data"}

_USES_TFF = {"federated", "runtime"}

# Only TFF has the functions that open its own data sets; they are imported when one is loaded.
_TFF_DATA = "data.sources.tff_cache"


@dataclasses.dataclass(frozen=True)
class _Import:
    """An import of the module `target`, or of a name in it; `when` says when it happens."""

    target: str
    when: str
    line: int


@functools.cache
def _modules() -> dict[str, pathlib.Path]:
    """The files of all modules by their names without `tff_pcdd.`; "" is the package itself."""
    files = {}
    for path in sorted(_PACKAGE.rglob("*.py")):
        parts = path.relative_to(_PACKAGE).with_suffix("").parts
        files[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return files


@functools.cache
def _tree(module: str) -> ast.Module:
    return ast.parse(_modules()[module].read_text(encoding="utf-8"))


@functools.cache
def _imports(module: str) -> tuple[_Import, ...]:
    return tuple(_walk(_tree(module), "module"))


def _walk(node: ast.AST, when: str) -> Iterator[_Import]:
    """The imports below a node."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import):
            for alias in child.names:
                yield _Import(alias.name, when, child.lineno)
        elif isinstance(child, ast.ImportFrom):
            assert not child.level, f"relative import in line {child.lineno}"
            for alias in child.names:
                yield _Import(f"{child.module}.{alias.name}", when, child.lineno)
        elif isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            yield from _walk(child, "function")
        elif isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING":
            yield from _walk(ast.Module(child.body, []), "typing")
            yield from _walk(ast.Module(child.orelse, []), when)
        elif isinstance(child, ast.With) and "lazy_imports" in ast.unparse(child.items[0]):
            yield from _walk(child, "lazy" if when == "module" else when)
        else:
            yield from _walk(child, when)


def _own(target: str) -> str | None:
    """The module of the package that an import names, or takes a name from."""
    root, _, name = target.partition(".")
    if root != _PACKAGE.name:
        return None
    while name not in _modules():
        name = name.rpartition(".")[0]
    return name


def _part(module: str) -> str:
    part = module.partition(".")[0]
    return "cli" if part == "__main__" else part


def _imports_of(root: str) -> Iterator[tuple[str, _Import]]:
    """The imports of a foreign package, with the modules that have them."""
    for module in _modules():
        for found in _imports(module):
            if found.target == root or found.target.startswith(f"{root}."):
                yield module, found


def _strings(node: ast.AST) -> Iterator[ast.Constant]:
    for child in ast.walk(node):
        if isinstance(child, ast.Constant) and isinstance(child.value, str):
            yield child


def test_every_part_has_a_layer():
    assert {_part(module) for module in _modules()} - {""} == set(_RANK)


def test_no_import_cycles():
    graph = {
        module: {
            own
            for found in _imports(module)
            if found.when == "module" and (own := _own(found.target)) is not None and own != module
        }
        for module in _modules()
    }
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as error:
        pytest.fail(f"import cycle: {' <- '.join(error.args[1])}")


def test_imports_point_down():
    """Also those that happen later; imports for annotations alone are free."""
    upwards = set()
    for module in _modules():
        for found in _imports(module):
            own = _own(found.target)
            if not module or own is None or found.when == "typing":
                continue
            assert own, f"{module}, line {found.line}: imports from the package's public names"
            part, other = _part(module), _part(own)
            if part != other and _RANK[part] >= _RANK[other]:
                assert found.when == "function", f"{module}, line {found.line}"
                upwards.add((module, own))
    assert upwards == _SHOWN_FROM_ABOVE


def test_private_modules_are_imported_in_their_own_part():
    found = {
        (module, own)
        for module in _modules()
        for each in _imports(module)
        if (own := _own(each.target)) is not None and _part(own) != _part(module)
        if any(name.startswith("_") for name in own.split("."))
    }
    assert {own for _, own in found} <= _PRIVATE_FOR_ALL, found


def test_a_method_gets_its_backbone_as_a_function():
    """So backbones are known only where an experiment is put together."""
    users = {
        _part(module)
        for module in _modules()
        for found in _imports(module)
        if _part(_own(found.target) or "") == "models"
    }
    assert users - {""} <= {"models", "experiment", "training", "studies"}


def test_formulas_do_not_import_tff():
    found = [
        (module, found)
        for module, found in _imports_of("tensorflow_federated")
        if _part(module) in _WITHOUT_TFF
    ]
    assert {module for module, _ in found} == {_TFF_DATA}
    assert {found.when for _, found in found} == {"function"}


def test_names_of_tff_are_used_in_few_places():
    users = {module for module, _ in _imports_of("tensorflow_federated")}
    assert {_part(module) for module in users - {_TFF_DATA}} == _USES_TFF


def test_private_names_of_tff_are_imported_in_one_module():
    private = {module for module, _ in _imports_of("tensorflow_federated.python")}
    assert private == {"runtime._tff_private"}


@pytest.mark.parametrize("module", ["training.run", "studies.comparison", "studies.sweeps"])
def test_what_draws_is_imported_after_the_last_round(module):
    """matplotlib and scikit-learn would delay the first round."""
    reached, pending = {module}, [module]
    for name in pending:  # It grows while it is read.
        for found in _imports(name):
            own = _own(found.target)
            if found.when == "module" and own is not None and own not in reached:
                reached.add(own)
                pending.append(own)
    for package in ("matplotlib", "sklearn"):
        users = {user for user, found in _imports_of(package) if found.when == "module"}
        assert users & reached == set()


def test_errors_name_settings_without_dashes():
    """Settings are flags on the command line only, which adds the dashes."""
    found = [
        f"{module}, line {text.lineno}: {text.value!r}"
        for module in _modules()
        if _part(module) != "cli"
        for node in ast.walk(_tree(module))
        if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call)
        if ast.unparse(node.exc.func).rpartition(".")[2] in ("SettingError", "DataError")
        for text in _strings(node.exc)
        if "--" in text.value
    ]
    assert found == []


def test_reasons_name_settings_without_dashes():
    """The same for the variables in which messages are put together."""
    found = [
        f"{module}, line {text.lineno}: {text.value!r}"
        for module in _modules()
        if _part(module) != "cli"
        for node in ast.walk(_tree(module))
        if isinstance(node, ast.Assign)
        if any(re.fullmatch("reason|message|why|text", ast.unparse(name)) for name in node.targets)
        for text in _strings(node.value)
        if re.search(r"--(\w|$)", text.value)
    ]
    assert found == []


def test_warnings_can_be_filtered_by_the_name_of_the_package():
    """The functions of `logging` itself would use the root logger, and set it up."""
    direct = re.compile(r"\blogging\.(debug|info|warning|error|exception|critical)\(")
    found = {m for m, path in _modules().items() if direct.search(path.read_text(encoding="utf-8"))}
    assert found == set()


def test_the_page_about_the_parts_has_a_picture_of_this_house():
    """`python -m tests.house` draws it again."""
    from tests import house

    assert house.PICTURE.read_text(encoding="utf-8") == house.draw()
    page = (_PACKAGE.parent / "docs" / "design.md").read_text(encoding="utf-8")
    assert "](images/house.svg)" in page
    described = set(re.findall(r"`(\w+)/?`", " ".join(re.findall(r"(?m)^\| (`.+?) \|", page))))
    assert set(_RANK) - {"_version"} <= described


@pytest.mark.parametrize("folder", ["benchmarks", "publication"])
def test_nothing_of_the_product_imports_what_stands_beside_it(folder):
    """Both folders measure and publish the package; a wheel lacks them."""
    assert (_PACKAGE.parent / folder / "__main__.py").is_file()
    assert [module for module, _ in _imports_of(folder)] == []
