"""The modules of this package that generate cases."""

from __future__ import annotations

import importlib
import pkgutil
import tempfile
import time
import unittest
from collections.abc import Iterator
from pathlib import Path

# Before the modules, some of which import TFF first: it prepares that.
import tff_pcdd  # noqa: F401
from tests import faults
from tests.faults import case
from tests.faults.case import Case, Result

# Cases after which progress is shown.
_EVERY = 100


def names() -> list[str]:
    """The names of the modules that define `cases(directory: Path)`, without importing them."""
    folder = Path(next(iter(faults.__path__)))
    return sorted(
        module.name
        for module in pkgutil.iter_modules(faults.__path__)
        if "\ndef cases(directory: Path)" in (folder / f"{module.name}.py").read_text()
    )


def cases(name: str, directory: Path) -> Iterator[Case]:
    """The cases of a module.

    Args:
        name: the module.
        directory: a directory for what the module's cases share; it has to outlive them.
    """
    return importlib.import_module(f"tests.faults.{name}").cases(directory)


def run(name: str, size: int | None) -> tuple[str, list[Result], float]:
    """Runs the cases of a module.

    Args:
        name: the module.
        size: at most how many cases of each kind; all if None.

    Returns:
        The module, the results, and the seconds that it took.
    """
    start = time.monotonic()
    results: list[Result] = []
    with tempfile.TemporaryDirectory() as directory:
        found = cases(name, Path(directory))
        try:
            for result in case.run(found if size is None else case.sample(found, size)):
                results.append(result)
                if len(results) % _EVERY == 0:
                    print(f"{name}: {len(results)} cases so far", flush=True)
        except unittest.SkipTest as reason:
            print(f"{name}: left out: {reason}", flush=True)
    return name, results, time.monotonic() - start
