"""Runs the cells of a notebook in a second kernel with Python 3.11.

TensorFlow Federated has no release for the Python version of Colab's kernel, and Colab offers no
other kernel. Therefore the first cell of our notebooks calls `start`, which installs an environment
with Python 3.11 and sends the code of all later cells to a kernel in this environment. Outputs,
figures and errors appear below the cells as usual. The two kernels share files, but no variables.

Widgets, `input()`, completion, and helpers that need the notebook's own kernel, such as
`google.colab.files`, do not work in the second kernel.

This module runs in the notebook's own kernel. It needs only IPython and jupyter_client, which every
notebook has, and supports Colab's old versions (7.34 and 7.4).
"""

from __future__ import annotations

import atexit
import contextlib
import os
import queue
import subprocess
import sys
import threading
from pathlib import Path

from IPython import get_ipython
from IPython.display import clear_output, publish_display_data
from jupyter_client import KernelManager
from jupyter_client.kernelspec import KernelSpec

# Variable of the notebook's own kernel that holds the second one.
_VARIABLE = "_python311"


def start(repository: str | os.PathLike) -> None:
    """Installs the project into a new environment and runs all later cells there.

    Args:
        repository: a clone of the project; the environment is installed in its folder `.venv`.

    Raises:
        subprocess.CalledProcessError: a step of the installation failed; its output says why.
    """
    forward(install(repository))


def install(repository: str | os.PathLike) -> Path:
    """Installs the environment if it does not exist; returns the path of its interpreter.

    The interpreter is provided by uv, because python3.11 of Colab's Ubuntu is a release candidate.
    """
    repository = Path(repository).resolve()
    environment = repository / ".venv"
    python = environment / "bin" / "python"
    finished = environment / ".installed"
    if finished.exists():
        return python
    print("Installing Python 3.11, TensorFlow Federated and tff_pcdd; this takes some minutes.")
    uv = [sys.executable, "-m", "uv", "--quiet"]
    into = [*uv, "pip", "install", f"--python={python}", "--no-deps"]
    for command in (
        [sys.executable, "-m", "pip", "install", "--quiet", "uv"],
        [*uv, "venv", "--python=3.11", "--allow-existing", str(environment)],
        [*into, "--require-hashes", "--requirement", str(repository / "requirements.lock")],
        [*into, "--no-build-isolation", str(repository)],
    ):
        subprocess.run(command, check=True)
    finished.touch()
    return python


def forward(python: str | os.PathLike) -> None:
    """Starts a kernel with another interpreter and runs all later cells of this notebook there.

    Args:
        python: path of the interpreter; ipykernel must be installed in its environment.
    """
    shell = get_ipython()
    kernel = Kernel(python)
    shell.user_ns[_VARIABLE] = kernel
    # The code is sent unchanged, because the other kernel must process the magics.
    shell.input_transformers_cleanup.append(
        lambda lines: [f"{_VARIABLE}.run({''.join(lines)!r})\n"] if lines else lines
    )
    kernel.run("import platform; print('Cells below run in Python', platform.python_version())")


class CellError(Exception):
    """An error in a cell, shown with the traceback of the second kernel."""

    def __init__(self, content: dict):
        super().__init__(f"{content['ename']}: {content['evalue']}")
        self._lines = content["traceback"]

    def _render_traceback_(self) -> list[str]:  # Called by IPython.
        return self._lines


class Kernel:
    """A kernel with another interpreter, whose outputs appear below the running cell.

    Args:
        python: path of the interpreter.

    Raises:
        RuntimeError: the kernel does not start.
    """

    def __init__(self, python: str | os.PathLike):
        self._manager = _Manager(str(python))
        # Colab's PYTHONPATH contains modules for its own Python; MPLBACKEND may refer to one.
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        environment["MPLBACKEND"] = "module://matplotlib_inline.backend_inline"
        self._manager.start_kernel(env=environment)
        atexit.register(self._manager.shutdown_kernel, now=True)
        self._client = self._manager.client()
        self._client.start_channels()
        self._client.wait_for_ready()
        # Messages are read in a separate thread, because interrupting a read could lose a message.
        self._messages = queue.Queue()
        threading.Thread(target=self._receive, daemon=True).start()

    def _receive(self) -> None:
        while True:
            with contextlib.suppress(queue.Empty):
                self._messages.put(self._client.get_iopub_msg(timeout=1))

    def run(self, code: str) -> None:
        """Runs a cell and shows its outputs as they arrive.

        Raises:
            CellError: the cell raised an error.
            RuntimeError: the kernel ended.
        """
        error = None
        try:  # Includes `execute`, because the cell may be running before it returns.
            # With stop_on_error, the second kernel would silently drop a cell that arrives while it
            # reports an error. The notebook's own kernel decides whether later cells run.
            request = self._client.execute(code, allow_stdin=False, stop_on_error=False)
            for kind, content in self._outputs(request):
                if kind == "error":
                    error = CellError(content)
                else:
                    _show(kind, content)
        except KeyboardInterrupt:
            self._manager.interrupt_kernel()
            raise
        if error is not None:
            raise error

    def _outputs(self, request: str):
        """Yields types and contents of the messages for a request, until the cell has finished."""
        while True:
            try:
                message = self._messages.get(timeout=1)
            except queue.Empty:
                if not self._manager.is_alive():
                    raise RuntimeError(
                        "the kernel with Python 3.11 ended, perhaps because of a lack of memory; "
                        "restart the session and run all cells again"
                    ) from None
                continue
            if message["parent_header"].get("msg_id") != request:
                continue
            kind, content = message["msg_type"], message["content"]
            if kind == "status" and content["execution_state"] == "idle":
                return
            yield kind, content


class _Manager(KernelManager):
    """A manager of a kernel that does not have to be registered in Jupyter."""

    def __init__(self, python: str):
        super().__init__()
        self._python = python

    @property
    def kernel_spec(self) -> KernelSpec:
        command = [self._python, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
        command.append("--log-level=ERROR")  # Hides warnings about networks, which it does not use.
        return KernelSpec(argv=command, display_name="Python 3.11", language="python")


def _show(kind: str, content: dict) -> None:
    """Shows an output message of the second kernel in this one."""
    if kind == "stream":
        print(content["text"], end="", file=getattr(sys, content["name"]), flush=True)
    elif kind in ("display_data", "execute_result", "update_display_data"):
        publish_display_data(
            content["data"],
            content["metadata"],
            transient=content.get("transient"),
            update=kind == "update_display_data",
        )
    elif kind == "clear_output":
        clear_output(content["wait"])
