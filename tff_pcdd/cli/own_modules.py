"""Imports the modules that the flag `import` names, from the module path or the working directory.

The working directory is not put on the module path: then any module that a library would use if it
were installed could come from there.
"""

from __future__ import annotations

import importlib
import itertools
import os
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder
from types import FrameType

from absl import flags as absl_flags

from tff_pcdd.errors import SettingError


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


def import_named(argv: Sequence[str]) -> None:
    """Imports the modules that `--import` names, also in flagfiles.

    Args:
        argv: the command line, with the program's name first.

    Raises:
        absl.flags.Error: a flagfile cannot be read.
        SettingError: a module cannot be found.
    """
    arguments = absl_flags.FlagValues().read_flags_from_files(argv[1:])
    names = []
    for argument, following in itertools.zip_longest(arguments, arguments[1:], fillvalue=""):
        flag, equals, value = argument.lstrip("-").partition("=")
        if argument.startswith("-") and flag == "import":
            names.append(value if equals else following)
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
