"""The modules of this package that generate cases."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator
from pathlib import Path

from tests import faults
from tests.faults.case import Case


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
