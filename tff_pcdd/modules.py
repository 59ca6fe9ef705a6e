"""Where modules are found: the programs of this package, and modules of the user's.

The latter are found on the module path, or in the working directory, which is not put on the module
path: then any module that a library would use if it were installed could come from there.
"""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import FrameType

# The folder of this package: a clone, which has tasks/ too, or that of installed packages.
_FOLDER = Path(__file__).parents[1]


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


def typed(program: str) -> str:
    """How one of the programs is started in the working directory, as one pastes it into a shell.

    With the interpreter that runs: its path from the working directory if it lies below it, as
    `.venv/bin/python`, its name if the shell finds it, and its whole path otherwise.
    """
    interpreter = Path(sys.executable or "python")
    try:
        here = Path.cwd()
    except OSError:  # It was deleted.
        here = Path("/dev/null")
    if interpreter.is_relative_to(here):
        interpreter = interpreter.relative_to(here)
    elif shutil.which(interpreter.name) == str(interpreter):
        interpreter = Path(interpreter.name)
    in_clone = here == _FOLDER and (here / "tasks").is_dir()
    module = f"tasks.{program}" if in_clone else f"tff_pcdd {program}"
    return f"{shlex.quote(str(interpreter))} -m {module}"
