"""Which other programs have a flag, for the error about an unknown one."""

from __future__ import annotations

from tff_pcdd.cli.flags import Flags


def having(name: str) -> list[str]:
    """The programs that have a flag, such as tasks.sweep.

    Example:
        >>> having("export_dir"), having("no_such_flag")
        (['tasks.export'], [])
    """
    # Only for an error, because it defines the flags of all programs.
    from tff_pcdd.cli import benchmark, compare, evaluate, export, partition, report, sweep, train

    programs = (train, compare, sweep, evaluate, export, partition, benchmark, report)
    found = []
    for program in programs:
        flags = Flags([""])
        program.define(flags)
        if name in flags:
            found.append(f"tasks.{program.__name__.rpartition('.')[2]}")
    return found
