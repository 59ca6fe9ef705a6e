"""Which other programs have a flag, for the error about an unknown one."""

from __future__ import annotations

from tff_pcdd.cli import compare, evaluate, export, partition, report, sweep, train
from tff_pcdd.cli.flags import Flags

_PROGRAMS = (train, compare, sweep, evaluate, export, partition, report)


def having(name: str) -> list[str]:
    """The programs that have a flag, also one that `no` switches off.

    Example:
        >>> having("export_dir"), having("no_such_flag")
        (['tasks.export'], [])
    """
    found = []
    for program in _PROGRAMS:
        flags = Flags([""])
        program.define(flags)
        if {name, name.removeprefix("no")} & {*flags.names()}:
            found.append(f"tasks.{program.__name__.rpartition('.')[2]}")
    return found
