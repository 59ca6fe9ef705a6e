"""The address of the repository is the same wherever it stands, and one command changes it."""

import re
import shutil
import subprocess
import sys
import tomllib

import nbformat
import pytest

from colab import address

_NOTEBOOKS = sorted(address.ROOT.glob(address.NOTEBOOKS))
_PLACES = [*(address.ROOT / name for name in address.FILES), *_NOTEBOOKS]
_OTHER = "https://github.com/some-body/a.fork_2"


def stated(root=address.ROOT):
    """The address that the Makefile states."""
    makefile = (root / "Makefile").read_text(encoding="utf-8")
    (found,) = re.findall(r"^REPOSITORY := (.+)$", makefile, re.M)
    return found


def opens(notebook, repository):
    """The address at which Colab opens a notebook."""
    path = repository.removeprefix("https://github.com/")
    return f"https://colab.research.google.com/github/{path}/blob/main/colab/{notebook.name}"


def read(name, root=address.ROOT):
    return (root / name).read_text(encoding="utf-8")


@pytest.fixture
def copy(tmp_path):
    """A folder with the files that have the address."""
    for path in [*_PLACES, address.ROOT / "colab" / "address.py"]:
        target = tmp_path / path.relative_to(address.ROOT)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, target)
    return tmp_path


def contents(root):
    return {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}


def test_metadata_and_site_have_the_address_of_the_makefile():
    project = tomllib.loads(read("pyproject.toml"))["project"]
    assert project["urls"] == {"Repository": stated()}
    assert re.findall("^repo_url: (.+)$", read("mkdocs.yml"), re.M) == [stated()]
    assert re.findall('^repository-code: "(.+)"$', read("CITATION.cff"), re.M) == [stated()]


@pytest.mark.parametrize("path", _NOTEBOOKS, ids=lambda path: path.stem)
def test_notebooks_install_from_there_and_open_in_colab(path):
    notebook = nbformat.read(path, as_version=4)
    installs = next(cell.source for cell in notebook.cells if cell.cell_type == "code")
    assert f'"git+{stated()}"' in installs
    badge = "https://colab.research.google.com/assets/colab-badge.svg"
    title, link, _ = notebook.cells[0].source.split("\n\n", 2)
    assert title.startswith("# ")
    assert link == f"[![Open in Colab]({badge})]({opens(path, stated())})"
    assert f"[Open in Colab]({opens(path, stated())})" in read("docs/tutorials/index.md")


def test_no_other_file_has_it():
    if not (address.ROOT / ".git").exists():
        pytest.skip("needs a clone")
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=address.ROOT, check=True, capture_output=True, text=True)
    owner = re.escape(stated().split("/")[-2])
    found = re.compile(rf"//[^\s\"'<>()]*/{owner}/".encode())
    files = {address.ROOT / name for name in listed.stdout.split("\0") if name}
    assert set(_PLACES) <= files
    having = {path for path in files if path.is_file() and found.search(path.read_bytes())}
    assert having == set(_PLACES)


def test_another_address_and_back(copy):
    before = contents(copy)
    address.replace(_OTHER, copy)
    changed = contents(copy)
    assert [path for path in before if before[path] == changed[path]] == [
        copy / "colab" / "address.py"
    ]
    assert stated(copy) == _OTHER
    for path in _NOTEBOOKS:
        text = read(path.relative_to(address.ROOT), copy)
        assert f"git+{_OTHER}" in text and opens(path, _OTHER) in text
        assert opens(path, _OTHER) in read("docs/tutorials/index.md", copy)
    address.replace(_OTHER, copy)
    assert contents(copy) == changed
    address.replace(stated(), copy)
    assert contents(copy) == before


def test_make_writes_what_the_makefile_states(copy):
    makefile = copy / "Makefile"
    makefile.write_text(read("Makefile").replace(stated(), _OTHER), encoding="utf-8")
    command = ["make", "address", f"PYTHON={sys.executable}"]
    subprocess.run(command, cwd=copy, check=True, capture_output=True)
    assert tomllib.loads(read("pyproject.toml", copy))["project"]["urls"]["Repository"] == _OTHER


@pytest.mark.parametrize(
    "wrong",
    [
        "",
        "some-body/fork",
        "https://github.com/fork",
        f"{_OTHER}.git",
        f"{_OTHER}/",
        "https://a.b/c/d",
    ],
)
def test_an_address_of_another_form_is_refused(wrong, copy):
    before = contents(copy)
    with pytest.raises(ValueError, match="no address like"):
        address.replace(wrong, copy)
    assert contents(copy) == before
