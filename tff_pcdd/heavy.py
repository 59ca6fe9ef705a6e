"""Imports of packages that take seconds: TensorFlow and TensorFlow Federated.

While they are imported, garbage is not collected. They create more than a million objects that stay
for the rest of the process, so a collection finds nothing, and as it would look at all objects each
time, collections would take a third of the time of the import.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import sys

from tff_pcdd import stages

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
        for name in missing:
            importlib.import_module(name)
    finally:
        if _owns_process:
            gc.freeze()
        if collects:
            gc.enable()
