"""Imports the modules that the flag `import` names, from the module path or the working directory.

The working directory is not put on the module path: then any module that a library would use if it
were installed could come from there.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import FrameType

from tff_pcdd.cli import flagfiles
from tff_pcdd.errors import SettingError
from tff_pcdd.training import imports

# Flags that name a directory of results.
_DIRECTORIES = ("run_dir", "output_dir", "comparison_dir")


class _WorkingDirectory:
    """Finds modules in a directory, for the flag and for the modules that it has found itself.

    Args:
        folder: the directory.
        names: the modules that the flag names.
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


def import_named(arguments: Sequence[str]) -> None:
    """Imports the modules that `--import` names.

    Args:
        arguments: the command line without the program's name, with flagfiles expanded.

    Raises:
        SettingError: a module cannot be found.
    """
    names = [value for flag, value in flagfiles.flags(arguments) if flag == "import"]
    for name in names:
        if not all(part.isidentifier() for part in name.split(".")):
            reason = "must be the name of a module, such as my_module"
            raise SettingError("import", name or None, reason)
    if names:
        sys.meta_path.append(_WorkingDirectory(os.getcwd(), names))
    for name in names:
        try:
            importlib.import_module(name)
        except ModuleNotFoundError as error:
            raise SettingError("import", name, str(error)) from None


def lacking(arguments: Sequence[str]) -> str | None:
    """The modules that a run which the command line names was trained with and the command lacks.

    Args:
        arguments: as for `import_named`.

    Returns:
        The start of an error; None if nothing is missing.
    """
    for flag, value in flagfiles.flags(arguments):
        if flag in _DIRECTORIES and (names := imports.missing(Path(value))):
            missing = " ".join(f"--import={name}" for name in names)
            return f"{missing}: is needed for {value}, which was made with it"
    return None
