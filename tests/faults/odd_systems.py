"""File systems without locks and clocks that go back: the results are those of other systems."""

from __future__ import annotations

import datetime
import errno
import fcntl
import functools
import os
import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.faults import programs
from tests.faults.case import SAME, Case
from tests.faults.programs import Program, Programs

_PROGRAMS = {
    "train": programs.TRAIN,
    "train, states on disk": programs.DISK_STORE,
    "train --overwrite": programs.overwriting(programs.TRAIN, "--rounds=1"),
    "train, repeated": programs.TRAIN._replace(earlier=(programs.TRAIN,)),
    "train, continued": programs.TRAIN._replace(earlier=(programs.TRAIN.with_flags("--rounds=2"),)),
    "compare": programs.COMPARE,
    "sweep": programs.SWEEP,
    "evaluate": programs.EVALUATE,
    "partition": programs.PARTITION,
    "export": programs.EXPORT,
    "export --overwrite": programs.overwriting(programs.EXPORT, "--checkpoint_round=2"),
}
# What file systems without locks answer.
_NO_LOCKS = (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL, errno.EIO, errno.EBADF)
_DAY = 86_400.0


def cases(directory: Path) -> Iterator[Case]:
    """Every program on such a system."""
    called = Programs(directory)
    for title, program in _PROGRAMS.items():
        for number in _NO_LOCKS:
            patch = functools.partial(_without_locks, number)
            check = functools.partial(_check, called, program, patch)
            yield Case("file system without locks", f"{title}, {errno.errorcode[number]}", check)
        for seed in range(10):
            patch = functools.partial(_clock_back, seed)
            check = functools.partial(_check, called, program, patch)
            yield Case("clock that goes back", f"{title}, {seed}", check)


def _check(called: Programs, program: Program, change: Callable, directory: Path) -> str:
    called.prepare(program, directory)
    with pytest.MonkeyPatch.context() as patch:
        change(patch, directory)
        called.succeed(program, directory)
    called.check(program, directory)
    return SAME


def _without_locks(number: int, patch: pytest.MonkeyPatch, directory: Path) -> None:
    def refuse(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    patch.setattr(fcntl, "flock", refuse)
    patch.setattr(fcntl, "lockf", refuse)


def _clock_back(seed: int, patch: pytest.MonkeyPatch, directory: Path) -> None:
    """Each look at the clock shows a random time of the last or the next days; files are as odd."""
    draw = random.Random(seed)
    now = time.time()

    def look() -> float:
        return now + draw.uniform(-30, 30) * _DAY

    class Date(datetime.datetime):
        @classmethod
        def now(cls, zone=None):
            return datetime.datetime.fromtimestamp(look(), zone)

    patch.setattr(time, "time", look)
    patch.setattr(time, "time_ns", lambda: int(look() * 1e9))
    patch.setattr(datetime, "datetime", Date)
    for path in directory.rglob("*"):
        os.utime(path, (look(), look()))
