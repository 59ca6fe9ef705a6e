"""The modules of this package that generate cases."""

from __future__ import annotations

import importlib
import pkgutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from tests import faults
from tests.faults import case
from tests.faults.case import Case, Result


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
    """Runs a module's cases; in a module that other processes can import.

    Args:
        name: the module.
        size: how many cases of each kind to draw; None for all.

    Returns:
        The name, what came out, and the seconds it took.
    """
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as directory:
        found = cases(name, Path(directory))
        results = list(case.run(found if size is None else case.sample(found, size)))
    return name, results, time.monotonic() - start
