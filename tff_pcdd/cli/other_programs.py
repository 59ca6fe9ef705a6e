"""The flags of all programs, for the error about an unknown one and for completion."""

from __future__ import annotations

import importlib
from collections.abc import Iterator

from tff_pcdd.cli import front_door, program
from tff_pcdd.cli.flags import Flags


def flags() -> Iterator[tuple[str, Flags]]:
    """The names of the programs that have flags, and these."""
    for name in front_door.PROGRAMS:
        module = importlib.import_module(f"tff_pcdd.cli.{name}")
        if hasattr(module, "define"):
            found = Flags([""])
            module.define(found)
            program.define_own(found)
            yield name, found


def having(name: str) -> list[str]:
    """The programs that have a flag, also one that `no` switches off.

    Example:
        >>> having("export_dir"), having("no_such_flag")
        (['tasks.export', 'tasks.predict'], [])
    """
    names = {name, name.removeprefix("no")}
    return [f"tasks.{program}" for program, found in flags() if names & {*found.names()}]
