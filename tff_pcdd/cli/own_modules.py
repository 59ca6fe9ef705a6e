"""Imports the modules that the flag `import` names, also from the working directory."""

from __future__ import annotations

import importlib
import os
from collections.abc import Sequence
from pathlib import Path

from tff_pcdd import modules
from tff_pcdd.cli import flagfiles
from tff_pcdd.errors import DataError, SettingError
from tff_pcdd.training import imports

# Flags that name a directory of results.
_DIRECTORIES = ("run_dir", "output_dir", "comparison_dir", "sweep_dir")


def import_named(arguments: Sequence[str]) -> None:
    """Imports the modules that `--import` names.

    Args:
        arguments: the command line without the program's name, with flagfiles expanded.

    Raises:
        SettingError: a module cannot be found, or registers something that cannot be used.
    """
    names = [value for flag, value in flagfiles.flags(arguments) if flag == "import"]
    for name in names:
        if not all(part.isidentifier() for part in name.split(".")):
            reason = "must be the name of a module, such as my_module"
            raise SettingError("import", name or None, reason)
    modules.search_working_directory(names)
    for name in names:
        try:
            importlib.import_module(name)
        except (ModuleNotFoundError, SettingError, DataError) as error:
            raise SettingError("import", name, str(error)) from None


def lacking(arguments: Sequence[str]) -> str | None:
    """The modules that the named run was trained with and `--import` does not name.

    Args:
        arguments: as for `import_named`.

    Returns:
        The start of an error; None if nothing is missing.
    """
    for flag, value in flagfiles.flags(arguments):
        if flag in _DIRECTORIES and (names := imports.missing(Path(os.path.expanduser(value)))):
            missing = " ".join(f"--import={name}" for name in names)
            return f"{missing}: is needed for {value}, which was made with it"
    return None
