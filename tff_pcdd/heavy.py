"""Imports of packages that take seconds: TensorFlow and TensorFlow Federated.

While they are imported, garbage is not collected. They create more than a million objects that stay
for the rest of the process, so a collection finds nothing, and as it would look at all objects each
time, collections would take a third of the time of the import.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import os
import sys
import tempfile
from collections.abc import Iterator

from tff_pcdd import machine, stages

_TITLES = {"tensorflow": "TensorFlow", "tensorflow_federated": "TensorFlow Federated"}

_owns_process = False


def own_process() -> None:
    """Says that the process does nothing but run one program of this package.

    From then on, garbage collections skip what exists once TensorFlow has been imported, and the
    end of the process skips what exists then: the memory is freed with the process.
    """
    global _owns_process
    if not _owns_process:
        _owns_process = True
        # Registered before all others, so that it is called after them.
        atexit.register(gc.freeze)


def load(*names: str) -> None:
    """Imports packages, unless that has been done, and enters the stage of importing the first.

    Args:
        names: the packages, such as "tensorflow".
    """
    missing = [name for name in names if name not in sys.modules]
    if not missing:
        return
    stages.enter(f"importing {_TITLES.get(missing[0], missing[0])}")
    collects = gc.isenabled()
    gc.disable()
    try:
        with _start_up_lines_left_out() if _owns_process else contextlib.nullcontext():
            for name in missing:
                importlib.import_module(name)
    finally:
        if _owns_process:
            gc.freeze()
        if collects:
            gc.enable()


# How the lines begin that TensorFlow's libraries write while they are loaded: that messages come
# before the log is set up, and messages of the level INFO, such as those about oneDNN.
_START_UP = (b"WARNING: All log messages before absl::InitializeLog()", b"I0000 ")


@contextlib.contextmanager
def _start_up_lines_left_out() -> Iterator[None]:
    """Leaves out what TensorFlow writes about itself, as TF_CPP_MIN_LOG_LEVEL asks.

    TensorFlow 2.21 does not look at the variable before its libraries are loaded. What they write
    directly to the file of standard error meanwhile is kept, and all other lines are written at the
    end. Where they could end the process, for lack of AVX, nothing is kept back.
    """
    if os.environ.get("TF_CPP_MIN_LOG_LEVEL", "0") == "0" or "avx" not in machine.cpu_flags():
        yield
        return
    stream = sys.stderr
    with (
        tempfile.TemporaryFile() as written,
        open(os.dup(2), "w", buffering=1, encoding="utf-8", errors="backslashreplace") as shown,
    ):
        os.dup2(written.fileno(), 2)
        # What Python writes, such as the stage, is shown at once.
        if stream is sys.__stderr__:
            sys.stderr = shown
        try:
            yield
        finally:
            sys.stderr = stream
            os.dup2(shown.fileno(), 2)
            written.seek(0)
            for line in written:
                if not line.startswith(_START_UP):
                    shown.buffer.write(line)
