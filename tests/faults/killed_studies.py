"""Comparisons, sweeps, exports and overwritten runs that are killed at any time.

The directory is copied, to memory, before every operation on the disk; each copy is what a process
that was killed then leaves behind. The same command, and others that a user may try, go on from
there.
"""

from __future__ import annotations

import functools
import itertools
import os
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.faults import disk, programs
from tests.faults.case import SAME, Case, SilentDifference
from tests.faults.programs import Program, Programs, results

_OVERWRITTEN_RUN = programs.overwriting(programs.TRAIN, "--rounds=1")
_OVERWRITTEN_COMPARISON = programs.overwriting(programs.COMPARE, "--rounds=1")
_OVERWRITTEN_SWEEP = programs.overwriting(programs.SWEEP, "--rounds=1")
_OVERWRITTEN_EXPORT = programs.overwriting(programs.EXPORT, "--checkpoint_round=2")


# Contents and times of change of files by path, and the times of folders, which have no content.
_Copy = dict[str, tuple[bytes | None, int]]


class _States:
    """What killed programs leave behind.

    Args:
        called: calls the programs.
        directory: for the copies.
    """

    def __init__(self, called: Programs, directory: Path):
        self.called = called
        self._directory = directory
        self._numbers = itertools.count()
        self._of = functools.cache(self._of)

    def _of(self, program: Program) -> list[_Copy]:
        where = self._directory / f"killed_{next(self._numbers)}"
        where.mkdir()
        self.called.prepare(program, where)
        states: list[_Copy] = []
        # Most files are the same in most copies.
        contents: dict[bytes, bytes] = {}

        with disk.intercepted(where, lambda *_: states.append(_read(where, contents))):
            self.called.succeed(program, where)
        return states

    def put(self, program: Program, share: float, directory: Path) -> None:
        """Copies what the program leaves behind if it is killed after a share of its operations."""
        states = self._of(program)
        _write(states[int(share * len(states))], directory)


def _read(directory: Path, contents: dict[bytes, bytes]) -> _Copy:
    """Copies a directory to memory, where equal contents are kept once."""
    copy: _Copy = {}
    for folder, _, names in os.walk(directory):
        inside = os.path.relpath(folder, directory)
        copy[inside] = None, os.stat(folder).st_mtime_ns
        for name in names:
            path = os.path.join(folder, name)
            with open(path, "rb") as file:
                content = file.read()
            known = contents.setdefault(content, content)
            copy[os.path.join(inside, name)] = known, os.stat(path).st_mtime_ns
    return copy


def _write(copy: _Copy, directory: Path) -> None:
    """Writes a copy into a directory, with the times of its files and folders."""
    for name, (content, _) in copy.items():
        path = directory / name
        if content is None:
            path.mkdir(exist_ok=True)
        else:
            path.write_bytes(content)
    # A file that is written changes the time of its folder.
    for name, (_, time) in copy.items():
        os.utime(directory / name, ns=(time, time))


def cases(directory: Path) -> Iterator[Case]:
    """Every program, killed at many times, and what a user may do then."""
    states = _States(Programs(directory), directory)
    for kind, program, check, number in (
        ("killed comparison", programs.COMPARE, _again, 40),
        ("killed comparison", _OVERWRITTEN_COMPARISON, _again, 30),
        ("killed comparison", _OVERWRITTEN_COMPARISON, _not_overwriting, 30),
        ("killed sweep", programs.SWEEP, _again, 30),
        ("killed sweep over methods", programs.SWEEP_METHODS, _again, 30),
        ("killed sweep", _OVERWRITTEN_SWEEP, _again, 20),
        ("killed sweep", _OVERWRITTEN_SWEEP, _not_overwriting, 20),
        ("killed export", programs.EXPORT, _goes_on, 40),
        ("killed export", _OVERWRITTEN_EXPORT, _goes_on, 40),
        ("killed export", _OVERWRITTEN_EXPORT, _restores, 40),
        ("overwritten run", _OVERWRITTEN_RUN, _again, 40),
        ("overwritten run", _OVERWRITTEN_RUN, _not_overwriting, 40),
        ("overwritten run", _OVERWRITTEN_RUN, _old_command, 40),
    ):
        overwrites = " --overwrite" if "--overwrite" in program.flags else ""
        then = check.__doc__.split(".")[0][0].lower() + check.__doc__.split(".")[0][1:]
        for index in range(number):
            yield Case(
                kind,
                f"{program.name}{overwrites} killed at {index + 1} of {number}: {then}",
                functools.partial(_check, states, program, check, index / number),
            )


def _check(
    states: _States,
    program: Program,
    check: Callable[[Programs, Program, Path], str],
    share: float,
    directory: Path,
) -> str:
    states.put(program, share, directory)
    return check(states.called, program, directory)


def _again(called: Programs, program: Program, directory: Path) -> str:
    """The same command ends with the results of an undisturbed one."""
    called.succeed(program, directory)
    called.check(program, directory)
    return SAME


def _without_overwriting(program: Program) -> Program:
    return program._replace(flags=tuple(f for f in program.flags if f != "--overwrite"))


def _not_overwriting(called: Programs, program: Program, directory: Path) -> str:
    """The command without --overwrite goes on, or is refused and the old results are whole.

    What a study consists of is overwritten run by run, so a refusal names one that is still old.
    """
    ended = called.call(_without_overwriting(program), directory)
    if ended.status == 0:
        called.check(program, directory)
        return SAME
    outcome = programs.error_line(ended, str(directory), "different settings")
    old = called.start(program) / program.out
    for run in old.rglob("config.json"):
        here = directory / program.out / run.relative_to(old)
        if here.exists() and here.read_bytes() == run.read_bytes():
            programs.assert_same_files(here.parent, run.parent)
    return outcome


def _old_command(called: Programs, program: Program, directory: Path) -> str:
    """The earlier command finds its results, computes them again, or is refused."""
    earlier = program.earlier[-1]
    ended = called.call(earlier, directory)
    if ended.status == 0:
        programs.assert_same_files(directory / program.out, called.start(program) / program.out)
        return SAME
    return programs.error_line(ended, str(directory), "different settings")


def _versions(directory: Path) -> dict[str, dict[str, bytes]]:
    """The contents of the complete versions in an export, by folder."""
    return {
        path.parent.relative_to(directory).as_posix(): results(path)
        for path in (*directory.glob("global/1"), *directory.glob("personal/*/1"))
    }


def _goes_on(called: Programs, program: Program, directory: Path) -> str:
    """The same command writes the versions that are missing, and only those."""
    wanted = _versions(called.wanted(program) / program.out)
    before = _versions(directory / program.out)
    missing = [folder for folder, content in wanted.items() if before.get(folder) != content]
    called.succeed(program, directory)
    written = sorted(f"personal/{name}" if name != "global" else name for name in called.exported)
    if written != sorted(missing):
        # The export had ended, or had not begun; then a version is like that of another export.
        finished = not (directory / program.out / ".unfinished.json").exists()
        assert finished and (not missing or written == sorted(wanted)), (written, missing)
    called.check(program, directory)
    return SAME


def _restores(called: Programs, program: Program, directory: Path) -> str:
    """An export of something else is refused, and each version is the old or the new one."""
    out = directory / program.out
    other = _without_overwriting(program).with_flags("--personal_model=before")
    outcome = programs.error_line(called.call(other, directory), str(out), "already contains")
    old, new = (
        _versions(called.start(program) / program.out),
        _versions(called.wanted(program) / program.out),
    )
    for folder, content in new.items():
        if _versions(out).get(folder) not in (content, old[folder]):
            raise SilentDifference(f"{folder} is neither the old nor the new version")
    assert not list(out.rglob("*.tmp")), "temporary files are left"
    return outcome
