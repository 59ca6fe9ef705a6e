"""The documentation holds every public name, and what it and the code refer to exists."""

from __future__ import annotations

import ast
import dataclasses
import importlib
import importlib.util
import json
import operator
import pathlib
import re
import sys

import pytest

import tff_pcdd
from publication import settings_page
from tests.markdown_tables import table_rows
from tests.methods import test_oracles
from tests.methods.refusing import SENDS
from tff_pcdd import methods
from tff_pcdd.registry import Registry
from tff_pcdd.settings import describe, registries
from tff_pcdd.training import ExperimentConfig

_ROOT = pathlib.Path(__file__).resolve().parents[2]
_TEXTS = ("*.md", "*.py", "*.flags", "*.toml", "*.yml", "*.ipynb", "Makefile")


def _load_public_names():
    path = _ROOT / "docs" / "hooks" / "public_names.py"
    spec = importlib.util.spec_from_file_location("public_names", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules["public_names"] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


_MODULES = _load_public_names().public_modules(_ROOT / "tff_pcdd")


def _texts():
    """Text files of the clone; not what was installed, built or written by runs."""
    skipped = {"build", "dist", "runs", "exported", "tmp", "node_modules"}
    for pattern in _TEXTS:
        for path in sorted(_ROOT.rglob(pattern)):
            parts = path.relative_to(_ROOT).parts
            if not any(part in skipped or part.startswith(".") for part in parts):
                yield path


@pytest.mark.parametrize("module", _MODULES, ids=lambda module: module.name)
def test_public_names_exist(module):
    imported = importlib.import_module(module.name)
    for name in module.names:
        assert hasattr(imported, name)
    if hasattr(imported, "__all__"):
        assert sorted(imported.__all__) == sorted(module.names)


def test_what_guides_call_is_there_after_the_import():
    """`import tff_pcdd` suffices for all functions that pages call by their whole names."""
    pages = [_ROOT / "README.md", *(_ROOT / "docs" / "how-to").glob("*.md")]
    texts = [path.read_text(encoding="utf-8") for path in pages]
    called = {name for text in texts for name in re.findall(r"tff_pcdd\.([\w.]+)\(", text)}
    assert {"run_experiment", "report.write_report"} <= called
    assert {name.partition(".")[0] for name in called} <= {*dir(tff_pcdd)}
    for name in called:
        assert operator.attrgetter(name)(tff_pcdd)


@pytest.mark.parametrize("module", _MODULES, ids=lambda module: module.name)
def test_registered_components_are_public(module):
    registry = getattr(importlib.import_module(module.name), "registry", None)
    if not isinstance(registry, Registry):
        pytest.skip("has no registry")
    # Components may be in a package below, which has a page of its own.
    pages = [page for page in _MODULES if page.name.startswith(module.name)]
    listed = {name for page in pages for name in page.names}
    listed |= {name for page in pages for _, classes in page.components for name in classes}
    built_in = {
        cls.__name__
        for cls in registry.classes().values()
        if cls.__module__.startswith(module.name)
    }
    assert built_in <= listed


def test_each_method_has_a_row_in_the_table_of_methods():
    text = (_ROOT / "docs" / "methods.md").read_text(encoding="utf-8")
    rows = re.findall(r"(?m)^\| ([\w, ]+) \|.*\|.*\|", text)
    named = [name for names in rows for name in names.split(", ") if name != "method"]
    registered = methods.registry.classes().items()
    assert sorted(named) == sorted(
        n for n, cls in registered if cls.__module__.startswith("tff_pcdd.")
    )


def test_the_table_of_methods_says_which_send_more_than_weights():
    text = (_ROOT / "docs" / "methods.md").read_text(encoding="utf-8")
    tables = text.split("\n\nTwo further methods")[0].split("| method |")[1:]
    rows = [row for table in tables for row in table_rows(f"| method |{table}")[1:]]
    sends = {name for names, _, _, sent, *_ in rows if sent != "–" for name in names.split(", ")}
    assert sends == {*SENDS, "fedproto"}


def test_the_page_about_the_parts_lists_all_parts_of_an_experiment():
    text = (_ROOT / "docs" / "design.md").read_text(encoding="utf-8")
    listed = [cells[0].strip("`") for cells in table_rows(text.split("## Settings")[1])]
    fields = [f.name for f in dataclasses.fields(ExperimentConfig) if not f.name.startswith("_")]
    assert listed[1 : len(fields) + 1] == fields


def test_the_guide_names_the_methods_that_depend_on_the_planned_rounds():
    """Which more rounds cannot be added to."""
    depend = ["fedproc", "fedrela"]
    registered = methods.registry.classes().items()
    assert sorted(name for name, cls in registered if cls.has_schedule) == depend
    page = (_ROOT / "docs" / "how-to" / "comparing.md").read_text(encoding="utf-8")
    text = " ".join(page.split())
    assert "Only `fedproc`, `fedrela` and runs whose" in text
    assert "so `fedproc` and `fedrela`, which depend on this number" in text


def test_the_page_about_the_parts_has_all_folders_of_programs():
    text = (_ROOT / "docs" / "design.md").read_text(encoding="utf-8")
    cells = [cells[0] for cells in table_rows(text.split("beside the package")[1].split("\n\n")[1])]
    listed = re.findall(r"`(\w+)/`", " ".join(cells))
    others = {"build", "dist", "runs", "tff_pcdd", "tmp"}
    assert {path.parent.name for path in _ROOT.glob("[a-z]*/*.py")} - others == {*listed}


def test_the_page_about_quality_names_what_is_stated_twice():
    """The methods and the files of test_oracles."""
    text = (_ROOT / "docs" / "quality.md").read_text(encoding="utf-8")
    rows = {re.findall(r"\[`(\w+)\.py`\]", cells[0])[0]: cells for cells in _oracles(text)}
    files = {path.stem for path in (_ROOT / "tests" / "methods").glob("*_oracle.py")}
    assert {*re.findall(r"\[`(\w+_oracle)\.py`\]", text)} == files
    for first, cases in (
        ("parabola_oracle", test_oracles.PARABOLAS),
        ("network_oracle", test_oracles.NETWORKS),
    ):
        names = re.split(", | and ", rows[first][1].partition(" on ")[0])
        short = {
            name.strip("`").lower().replace("logit adjustment", "logitadjust") for name in names
        }
        assert short == {name for name, *_ in cases}


def _oracles(text):
    return [cells for cells in table_rows(text) if "_oracle.py" in cells[0]]


def test_each_kind_of_component_is_in_the_guide_to_adding_one():
    text = (_ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    listed = {cells[-1].strip("`-") for cells in table_rows(text) if cells[-1].startswith("`--")}
    of_runs = {"runtime", "callbacks"}
    assert listed == {*of_runs, *(kind.setting for kind in registries(ExperimentConfig))}


def _texts_of_the_code():
    """All texts in the package, with "…" in the place of what is filled in."""
    for path in (_ROOT / "tff_pcdd").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.JoinedStr):
                parts = (p.value if isinstance(p, ast.Constant) else "…" for p in node.values)
                yield "".join(parts)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield node.value


def test_symptoms_are_what_programs_say():
    """Messages stand in backticks, and kinds of findings in italics."""
    page = (_ROOT / "docs" / "how-to" / "troubleshooting.md").read_text(encoding="utf-8")
    symptoms = [cells[0] for cells in table_rows(page)]
    messages = {text for cell in symptoms for text in re.findall("`(.+?)`", cell)}
    kinds = {text for cell in symptoms for text in re.findall(r"\*(.+?)\*", cell)}
    assert len(messages) >= 8 and len(kinds) >= 6
    said = {*_texts_of_the_code()}
    assert kinds <= said
    # The kernel, the Makefile, and a message whose cases docs/quality.md has as tests find them.
    elsewhere = ("Makefile", "docs/quality.md")
    texts = [*said, "Killed", *((_ROOT / path).read_text(encoding="utf-8") for path in elsewhere)]
    assert not [message for message in messages if not any(message in text for text in texts)]


def test_pages_that_are_mentioned_exist():
    missing = {
        f"{path.relative_to(_ROOT)}: {page}"
        for path in _texts()
        for page in re.findall(r"\bdocs/[\w./-]+\.md\b", path.read_text(encoding="utf-8"))
        if not (_ROOT / page).is_file()
    }
    assert not missing


def _markdown(path):
    """The text of a page or of a notebook, without code."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".md":
        return re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)
    cells = json.loads(text)["cells"]
    return "".join("".join(c["source"]) for c in cells if c["cell_type"] == "markdown")


def test_links_lead_to_files():
    missing = set()
    for path in [p for p in _texts() if p.suffix in (".md", ".ipynb")]:
        # Links of a template are those of the page that is made from it, which lies elsewhere.
        if path.parent.name == "templates":
            continue
        for target in re.findall(r"\]\((?!\w+:|#)([^)\s#]+)", _markdown(path)):
            if not (path.parent / target).exists():
                missing.add(f"{path.relative_to(_ROOT)}: {target}")
    assert not missing


def test_pictures_are_small_and_used():
    pages = "".join(path.read_text(encoding="utf-8") for path in (_ROOT / "docs").rglob("*.md"))
    pages += (_ROOT / "README.md").read_text(encoding="utf-8")
    pictures = sorted((_ROOT / "docs" / "images").iterdir())
    assert pictures
    for path in pictures:
        assert path.suffix == ".png" or path.name == "house.svg"
        assert path.stat().st_size <= 200_000
        assert f"images/{path.name}" in pages


def test_flagfiles_that_pages_name_exist():
    pages = [*(_ROOT / "docs").rglob("*.md"), _ROOT / "README.md"]
    for path in pages:
        for flagfile in re.findall(r"--flagfile=(flags/\S+\.flags)", path.read_text("utf-8")):
            assert (_ROOT / flagfile).is_file(), f"{path.name}: {flagfile}"


def test_the_licences_of_all_locked_packages_are_listed():
    page = (_ROOT / "docs" / "licences.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| [^|]+ \| ([a-z0-9, -]+) \|$", page, re.M)
    listed = {name for row in rows for name in row.split(", ")}
    for lock in (
        "requirements",
        "requirements-tracking",
        "serving/requirements",
        "docs/requirements",
    ):
        text = (_ROOT / f"{lock}.lock").read_text(encoding="utf-8")
        # What depends on the platform or the Python may be missing in an environment.
        locked = re.findall(r"^([\w.-]+)(?:\[[^]]*\])?==[^\s;]+ *\\?$", text, re.M)
        assert locked
        assert {re.sub(r"[-_.]+", "-", name).lower() for name in locked} <= listed


def test_the_page_of_settings_has_all_of_them():
    """`python -m publication.settings_page` writes it again."""
    assert settings_page.PAGE.read_text(encoding="utf-8") == settings_page.page()
    names = re.findall(r"^\| `(\w+)` ", settings_page.page(), re.M)
    assert {setting.name for setting in describe(ExperimentConfig)} <= set(names)
    assert len(names) == len(set(names))


def test_pages_and_notebooks_are_spelled_in_one_way():
    """As in America; pictures in notebooks are no texts."""
    british = r"(?i)favour|colour|behaviour|neighbour|labelled|modelled"
    for path in _texts():
        text = path.read_text(encoding="utf-8")
        if path.suffix == ".ipynb":
            text = "".join(line for cell in json.loads(text)["cells"] for line in cell["source"])
        if path.suffix in (".md", ".ipynb"):
            found = re.findall(british, text)
            assert not found, f"{path.name}: {found}"
