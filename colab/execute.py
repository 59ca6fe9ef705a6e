"""Runs notebooks and saves them with their outputs.

python colab/execute.py [NOTEBOOK ...]      (by default all in this folder)
"""

import os
import sys
import tempfile
from pathlib import Path

import nbclient
import nbformat

FOLDER = Path(__file__).resolve().parent


def execute(path: str | os.PathLike, directory: str | os.PathLike) -> nbformat.NotebookNode:
    """Runs all cells of a notebook in a new kernel, which imports the package of this repository.

    Args:
        path: file of the notebook; it is not changed.
        directory: working directory of the kernel.

    Returns:
        The notebook with its outputs, without data that differ between runs, such as times and the
        version of Python.

    Raises:
        nbclient.exceptions.CellExecutionError: a cell raised an error.
    """
    notebook = nbformat.read(path, as_version=4)
    client = nbclient.NotebookClient(
        notebook,
        timeout=None,
        startup_timeout=600,
        kernel_name="python3",
        extra_arguments=["--log-level=ERROR"],
        record_timing=False,
        coalesce_streams=True,
        resources={"metadata": {"path": str(directory)}},
    )
    client.execute(env={**os.environ, "PYTHONPATH": str(FOLDER.parent)})
    notebook.metadata.language_info.pop("version", None)
    return notebook


if __name__ == "__main__":
    for name in sys.argv[1:] or sorted(FOLDER.glob("*.ipynb")):
        print(name, flush=True)
        with tempfile.TemporaryDirectory() as scratch:
            executed = execute(name, scratch)
        nbformat.write(executed, name)
