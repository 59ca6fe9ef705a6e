"""Executes notebooks from top to bottom and saves them with their outputs.

python colab/execute.py [NOTEBOOK ...]      (all in this folder by default)
"""

import os
import sys
import tempfile
from pathlib import Path

import nbclient
import nbformat

FOLDER = Path(__file__).resolve().parent


def execute(path: str | os.PathLike, directory: str | os.PathLike) -> nbformat.NotebookNode:
    """Runs all cells of a notebook in a fresh kernel, which has the package beside this folder.

    Args:
        path: the notebook's file, which stays as it is.
        directory: where the kernel starts.

    Returns:
        The notebook with its outputs, without what differs from run to run by itself.

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
    return notebook


if __name__ == "__main__":
    for name in sys.argv[1:] or sorted(FOLDER.glob("*.ipynb")):
        print(name, flush=True)
        with tempfile.TemporaryDirectory() as scratch:
            executed = execute(name, scratch)
        nbformat.write(executed, name)
