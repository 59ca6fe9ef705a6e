"""Imports the modules that the flag `import` names, from the module path or the working directory.

The working directory is not put on the module path: then any module that a library would use if it
were installed could come from there.
"""

from __future__ import annotations

import importlib
import itertools
import os
import sys
from collections.abc import Iterator, Sequence
from importlib.machinery import ModuleSpec, PathFinder
from types import FrameType

from absl import flags as absl_flags

from tff_pcdd.errors import SettingError
from tff_pcdd.training.run_directory import path_settings

# Files that show that a directory holds results.
_RESULTS = ("best.flags", "comparison.csv", "config.json", "sweep.csv")


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
        SettingError: a module cannot be found, or a flagfile among results names one.
    """
    _check_flagfiles(argv[1:])
    try:
        arguments = absl_flags.FlagValues().read_flags_from_files(argv[1:])
    except ValueError as error:
        raise SettingError("flagfile", None, f"cannot be read: {error}") from None
    names = [value for flag, value in _flags(arguments) if flag == "import"]
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


def _check_flagfiles(arguments: Sequence[str]) -> None:
    """Refuses flagfiles among results that name modules, paths or further flagfiles.

    The programs write flagfiles with settings only. Results may come from anyone, whereas a
    flagfile elsewhere is as trusted as the command line that names it.
    """
    for name, text in _flags(arguments):
        path = os.path.expanduser(text)
        near = [os.path.join(os.path.dirname(path), file) for file in _RESULTS]
        if name != "flagfile" or not any(map(os.path.exists, near)):
            continue
        try:
            with open(path, encoding="utf-8") as file:
                lines = file.read().splitlines()
        except (OSError, ValueError):  # absl reports these.
            continue
        for inner, value in _flags([line.strip() for line in lines]):
            if inner in ("flagfile", "import", *path_settings()):
                raise SettingError(
                    "flagfile",
                    text,
                    f"lies in a directory of results and names {inner}={value}, which is not "
                    "followed; give this flag on the command line",
                )


def _flags(arguments: Sequence[str]) -> Iterator[tuple[str, str]]:
    """The flags among arguments, with their values."""
    for argument, following in itertools.zip_longest(arguments, arguments[1:], fillvalue=""):
        flag, equals, value = argument.lstrip("-").partition("=")
        if argument.startswith("-"):
            yield flag, value if equals else following
