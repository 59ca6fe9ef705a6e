"""Where modules of the user's are found: on the module path, or in the working directory.

The working directory is not put on the module path: then any module that a library would use if it
were installed could come from there.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder
from types import FrameType


class _WorkingDirectory:
    """Finds modules in a directory: those that are named, and those that they import.

    Args:
        folder: the directory.
        names: the modules that are named.
    """

    def __init__(self, folder: str, names: Sequence[str]):
        self._folder = folder
        self._names = {name.partition(".")[0] for name in names}
        self._found: set[str] = set()

    def find_spec(self, name: str, path=None, target=None) -> ModuleSpec | None:
        """Called by Python for modules that are not on the module path."""
        if path is not None or not (name in self._names or _importer() in self._found):
            return None
        spec = PathFinder.find_spec(name, [self._folder])
        if spec is not None:
            self._found.add(name)
        return spec


def _importer() -> str:
    """The outermost package of the module whose import statement is being executed."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None and "importlib" in frame.f_code.co_filename:
        frame = frame.f_back
    return "" if frame is None else frame.f_globals.get("__name__", "").partition(".")[0]


def search_working_directory(names: Sequence[str]) -> None:
    """Makes Python find modules in the current working directory too.

    Args:
        names: the modules, as in an import statement.
    """
    if names:
        sys.meta_path.append(_WorkingDirectory(os.getcwd(), names))
