"""Disks that are full or read-only, or fail, while a program writes to them.

A program is called while the n-th operation of its kind on the disk fails, and those after it as
long as the fault lasts. It has to end with one line that names a path in the directory. Then the
fault is removed, and the same command has to end with the results of an undisturbed call.
"""

from __future__ import annotations

import errno
import functools
import os
import tempfile
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import NamedTuple

from tests.faults import disk, programs
from tests.faults.case import SAME, Case
from tests.faults.disk import CREATE, DELETE, MAKE, RENAME, SYNC, WRITE
from tests.faults.programs import Program, Programs


class _Fault(NamedTuple):
    """What fails, and whether it fails again until the fault is removed."""

    number: int
    kinds: Collection[str]
    lasts: bool
    kind: str


_NEEDS_SPACE = (CREATE, WRITE, SYNC, MAKE)
_CHANGES_NAMES = (CREATE, RENAME, MAKE, DELETE)
_FAULTS = (
    _Fault(errno.ENOSPC, _NEEDS_SPACE, True, "full disk or quota"),
    _Fault(errno.EDQUOT, _NEEDS_SPACE, True, "full disk or quota"),
    _Fault(errno.EROFS, (*_CHANGES_NAMES, WRITE, SYNC), True, "read-only or forbidden"),
    _Fault(errno.EACCES, _CHANGES_NAMES, True, "read-only or forbidden"),
    _Fault(errno.EIO, (*_CHANGES_NAMES, WRITE, SYNC), False, "input/output error"),
    # The disk has space, but no entry for a further file.
    _Fault(errno.ENOSPC, (CREATE, MAKE), True, "no inode left"),
)

# How many operations of each program fail, one in each case.
_PROGRAMS = {
    "train": (programs.TRAIN, 12),
    "train, states on disk": (programs.DISK_STORE, 10),
    "train --overwrite": (programs.overwriting(programs.TRAIN, "--rounds=1"), 10),
    "compare": (programs.COMPARE, 9),
    "sweep": (programs.SWEEP, 9),
    "evaluate": (programs.EVALUATE, 4),
    "partition": (programs.PARTITION, 5),
    "export": (programs.EXPORT, 10),
    "export --overwrite": (programs.overwriting(programs.EXPORT, "--checkpoint_round=2"), 30),
}


def cases(directory: Path) -> Iterator[Case]:
    """Every fault at several operations of every program."""
    called = Programs(directory)

    @functools.cache
    def operations(program: Program) -> list[str]:
        """The kinds of all operations of a program that nothing disturbs."""
        kinds: list[str] = []
        where = Path(tempfile.mkdtemp(dir=directory))
        called.prepare(program, where)
        with disk.intercepted(where, lambda kind, _: kinds.append(kind)):
            called.succeed(program, where)
        return kinds

    for title, (program, number) in _PROGRAMS.items():
        for fault in _FAULTS:
            for index in range(number):
                yield Case(
                    fault.kind,
                    f"{title}, {errno.errorcode[fault.number]} {index + 1} of {number}",
                    functools.partial(_check, called, program, fault, index / number, operations),
                )


def _check(called: Programs, program: Program, fault: _Fault, share, operations, directory: Path):
    total = sum(kind in fault.kinds for kind in operations(program))
    first = int(share * total)
    seen = 0

    def before(kind: str, path: str) -> None:
        nonlocal seen
        if kind in fault.kinds:
            seen += 1
            if seen == first + 1 or (fault.lasts and seen > first):
                raise OSError(fault.number, os.strerror(fault.number), path)

    called.prepare(program, directory)
    with disk.intercepted(directory, before):
        failed = called.call(program, directory)
    assert seen > first, "the fault did not happen"
    if failed.status == 0:
        # It was of no importance, such as in removing a temporary file that is gone anyway, or only
        # the report is missing, which does not make a program fail.
        if "report.html was not written" in failed.errors:
            called.succeed(program, directory)
        called.check(program, directory)
        return SAME
    outcome = programs.error_line(failed, str(directory), os.strerror(fault.number))
    called.succeed(program, directory)
    called.check(program, directory)
    return outcome
