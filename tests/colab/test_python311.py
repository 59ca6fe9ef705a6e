"""Cells that run in a second kernel, from a notebook whose own kernel cannot run them."""

import os
import subprocess
import sys

import nbclient
import nbformat
import pytest

from colab import execute

pytestmark = pytest.mark.slow

FORWARD = f"""
import os, sys
print(os.getpid())
sys.path.insert(0, {str(execute.FOLDER)!r})
import python311
python311.forward({sys.executable!r})
"""


def run(folder, *cells, allow_errors=False):
    """Outputs of the code cells, a list for each."""
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    nbclient.NotebookClient(
        notebook,
        timeout=None,
        startup_timeout=600,
        kernel_name="python3",
        allow_errors=allow_errors,
        coalesce_streams=True,
        resources={"metadata": {"path": str(folder)}},
    ).execute()
    return [cell.outputs for cell in notebook.cells]


def text(cell_outputs, name="stdout"):
    return "".join(output.text for output in cell_outputs if output.get("name") == name)


def test_cells_share_a_kernel_of_their_own(tmp_path):
    first, second, third = run(
        tmp_path, FORWARD, "import os\nmine = os.getpid()", "print(mine, os.getpid(), os.getcwd())"
    )
    assert second == []
    mine, again, folder = text(third).split()
    assert mine == again != text(first).split()[0]
    assert os.path.samefile(folder, tmp_path)


def test_texts_results_and_pictures_appear_in_place(tmp_path):
    _, printed, result, hidden, picture, magic, cleared, updated = run(
        tmp_path,
        FORWARD,
        "import sys\nprint('told')\nprint('warned', file=sys.stderr)",
        "'''quotes \\ and ünïcode'''",
        "1 + 1;",
        "%matplotlib inline\nimport matplotlib.pyplot as plt\nplt.plot([1, 2]);",
        "%%bash\necho from the shell",
        "from IPython.display import clear_output\nprint('old')\nclear_output()\nprint('new')",
        "handle = display('old', display_id=True)\nhandle.update('new')",
    )
    assert text(printed) == "told\n" and text(printed, "stderr") == "warned\n"
    assert [output.data["text/plain"] for output in result] == [repr("quotes \\ and ünïcode")]
    assert hidden == []
    assert [sorted(output.data) for output in picture] == [["image/png", "text/plain"]]
    assert text(magic) == "from the shell\n"
    assert text(cleared) == "new\n"
    assert [output.data["text/plain"] for output in updated] == ["'new'"]


def test_an_error_stops_the_notebook_and_shows_where_it_came_from(tmp_path):
    cell = "def divide(x):\n    return 1 / x\n\ndivide(0)"
    _, broken, after = run(tmp_path, FORWARD, cell, "divide(2)", allow_errors=True)
    assert [output.output_type for output in broken] == ["error"]
    shown = "\n".join(broken[0].traceback)
    assert "ZeroDivisionError" in shown and "divide" in shown and "python311" not in shown
    assert after[0].data["text/plain"] == "0.5"
    with pytest.raises(nbclient.exceptions.CellExecutionError, match="ZeroDivisionError"):
        run(tmp_path, FORWARD, cell)


# The first kernel is still sending a cell when the second one runs it already.
SLOW_TO_SEND = f"""{FORWARD}
import time
sent = _python311._client.execute
_python311._client.execute = lambda *args, **options: (sent(*args, **options), time.sleep(2))[0]
"""


@pytest.mark.parametrize("forward", [FORWARD, SLOW_TO_SEND], ids=["receiving", "sending"])
def test_an_interrupt_reaches_the_cell_and_the_next_one_runs(tmp_path, forward):
    cell = "import os, signal, time\ndone = False\ntime.sleep(0.5)\n"
    cell += "os.kill(os.getppid(), signal.SIGINT)\n"
    _, interrupted, after = run(
        tmp_path, forward, cell + "time.sleep(30)\ndone = True", "print(done)", allow_errors=True
    )
    assert interrupted[-1].ename == "KeyboardInterrupt"
    assert text(after) == "False\n"


def test_a_kernel_that_ends_is_reported(tmp_path):
    _, ended = run(tmp_path, FORWARD, "import os\nos._exit(1)", allow_errors=True)
    assert "restart the session" in ended[-1].evalue


def test_first_cell_of_the_notebooks_fetches_the_project_and_starts_the_kernel(tmp_path):
    """The installation itself is left out: the clone has an environment that is complete."""
    origin = tmp_path / "origin"
    (origin / "colab").mkdir(parents=True)
    (origin / "colab" / "python311.py").write_bytes((execute.FOLDER / "python311.py").read_bytes())
    python = origin / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    (origin / ".venv" / ".installed").touch()
    identity = ["-c", "user.name=test", "-c", "user.email=test@example.invalid"]
    for command in (["init", "-q"], ["add", "."], [*identity, "commit", "-q", "-m", "all"]):
        subprocess.run(["git", *command], cwd=origin, check=True)
    notebook = nbformat.read(sorted(execute.FOLDER.glob("*.ipynb"))[0], as_version=4)
    first = next(cell.source for cell in notebook.cells if cell.cell_type == "code")
    lines = [
        f"REPOSITORY = {str(origin)!r}" if line.startswith("REPOSITORY = ") else line
        for line in first.splitlines()
    ]
    assert lines != first.splitlines()
    outputs = run(
        tmp_path,
        # As on Colab, where find_spec gives None.
        "import os, sys\nsys.modules['tensorflow_federated'] = None\nprint(os.getpid())",
        "\n".join(lines),
        "import os\nprint(os.getpid(), os.environ['TF_CPP_MIN_LOG_LEVEL'])",
    )
    assert (tmp_path / "repository" / "colab").exists()
    own, (other, level) = text(outputs[0]).strip(), text(outputs[2]).split()
    assert own != other and level == "3"
