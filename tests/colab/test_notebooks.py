"""The notebooks: they run, and what is committed reads well without running."""

import json
import re

import nbformat
import pytest

from colab import execute
from tff_pcdd import stack

NOTEBOOKS = sorted(execute.FOLDER.glob("*.ipynb"))
_BYTES = 400_000  # more than this is slow to open on the web
_ROUNDS = 4

every_notebook = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
# The first one in `make test`.
mostly_rarely = pytest.mark.parametrize(
    "path",
    [NOTEBOOKS[0], *(pytest.param(path, marks=pytest.mark.rare) for path in NOTEBOOKS[1:])],
    ids=lambda path: path.stem,
)


def code_cells(notebook):
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def outputs(notebook):
    return [output for cell in code_cells(notebook) for output in cell.outputs]


def pictures(notebook):
    return [output for output in outputs(notebook) if "image/png" in output.get("data", {})]


@pytest.fixture
def committed(path):
    """The notebook as it is in the repository."""
    return nbformat.read(path, as_version=4)


def test_there_are_seven_of_them():
    assert [path.stem for path in NOTEBOOKS] == [
        "1_quickstart",
        "2_fedgela",
        "3_fedmr",
        "4_fedloge",
        "5_your_data",
        "6_your_method",
        "7_export_and_serve",
    ]


def test_first_cells_are_the_same_and_install_what_fits():
    (first,) = {code_cells(nbformat.read(path, as_version=4))[0].source for path in NOTEBOOKS}
    assert f"%{stack.INSTALL} " in re.sub(r"\\\n *", "", first)


@every_notebook
def test_no_version_of_python_is_stated(committed):
    assert committed.metadata.kernelspec.name == "python3"
    assert "version" not in committed.metadata.language_info


@pytest.mark.slow
@mostly_rarely
def test_notebook_runs_and_draws(path, committed, tmp_path):
    """With fewer rounds, since most of the time is spent in those; `make notebooks` runs all."""
    for cell in code_cells(committed):
        cell.source = shortened(cell.source)
    assert f"rounds={_ROUNDS}," in "".join(cell.source for cell in code_cells(committed))
    copy = tmp_path / path.name
    nbformat.write(committed, copy)
    assert pictures(execute.execute(copy, tmp_path))


def shortened(source):
    """A cell with less training of a smaller network, and pictures of as many rounds."""
    source = re.sub(r"\brounds=\d+", f"rounds={_ROUNDS}", source)
    source = source.replace('dataset="digits",', 'dataset="digits", model="mlp",')
    source = source.replace("range(1, 31)", f"range(1, {_ROUNDS + 1})")
    return source.replace(".take(300)", ".take(30)")


@every_notebook
def test_questions_at_the_start_are_answered_at_the_end(committed):
    questions = committed.cells[0].source.split("**Think first**")[1]
    answers = committed.cells[-1].source.split("## Answers to the questions")[1]
    for text in (questions, answers.split("\n## ")[0]):
        assert len(re.findall("^- ", text, re.MULTILINE)) == 3


@every_notebook
def test_committed_outputs_are_of_one_run_from_top_to_bottom(committed):
    nbformat.validate(committed)
    cells = code_cells(committed)
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
    assert pictures(committed)


@every_notebook
def test_committed_outputs_are_small_and_free_of_noise(path, committed):
    assert path.stat().st_size < _BYTES
    for output in outputs(committed):
        assert output.output_type != "error"
        assert output.get("name") != "stderr"
        text = json.dumps({**output, "data": {**output.get("data", {}), "image/png": ""}})
        for noise in ("Warning", "WARNING", "/home/", "/root/", "/Users/", "/tmp/", "\\u001b["):
            assert noise not in text
