"""The flags of all programs, for the error about an unknown one and for completion."""

from __future__ import annotations

from collections.abc import Iterator

from tff_pcdd.cli import compare, evaluate, export, partition, program, report, sweep, train
from tff_pcdd.cli.flags import Flags

_PROGRAMS = (train, compare, sweep, evaluate, export, report, partition)


def flags() -> Iterator[tuple[str, Flags]]:
    """The names of the programs, and their flags."""
    for module in _PROGRAMS:
        found = Flags([""])
        module.define(found)
        program.define_own(found)
        yield module.__name__.rpartition(".")[2], found


def having(name: str) -> list[str]:
    """The programs that have a flag, also one that `no` switches off.

    Example:
        >>> having("export_dir"), having("no_such_flag")
        (['tasks.export'], [])
    """
    names = {name, name.removeprefix("no")}
    return [f"tasks.{program}" for program, found in flags() if names & {*found.names()}]
