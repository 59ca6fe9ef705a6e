"""Files of finished comparisons, sweeps and exports that are damaged, and the next call.

The same command ends with the results that were there, or names what is damaged.
"""

from __future__ import annotations

import functools
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.faults import programs
from tests.faults.case import REPAIRED, SAME, Case
from tests.faults.programs import Program, Programs


def _flip(path: Path) -> None:
    """Changes a digit in the middle, which leaves most files readable."""
    content = bytearray(path.read_bytes())
    middle = len(content) // 2
    digits = [i for i, byte in enumerate(content) if 48 <= byte < 58] or [middle]
    index = min(digits, key=lambda i: abs(i - middle))
    content[index] = 48 + (content[index] - 47) % 10
    path.write_bytes(content)


def _directory(path: Path) -> None:
    path.unlink()
    path.mkdir()
    (path / "other").touch()


_DAMAGES: dict[str, Callable[[Path], object]] = {
    "emptied": lambda path: path.write_bytes(b""),
    "cut in half": lambda path: path.write_bytes(path.read_bytes()[: path.stat().st_size // 2]),
    "another digit": _flip,
    "overwritten": lambda path: path.write_bytes(bytes(range(256))),
    "preceded by a byte order mark": lambda path: path.write_bytes(
        b"\xef\xbb\xbf" + path.read_bytes()
    ),
    "missing": Path.unlink,
    "a directory": _directory,
}
_FILES = {
    programs.COMPARE: (
        "comparison.csv",
        "comparison.md",
        "comparison.png",
        "comparison_bars.png",
        "fedprox/seed_0/config.json",
        "fedprox/seed_0/metrics.csv",
        "fedavg/seed_0/summary.json",
    ),
    programs.SWEEP: (
        "sweep.csv",
        "sweep.md",
        "sweep.png",
        "best.flags",
        "batch_seed=2/seed_0/config.json",
        "batch_seed=1/seed_0/metrics.csv",
        "batch_seed=2/seed_0/summary.json",
    ),
}
_EXPORTED = ("models.config", "global/1/saved_model.pb", "personal/0/1/model_card.md")


def cases(directory: Path) -> Iterator[Case]:
    """Every file of a study, damaged in every way."""
    called = Programs(directory)
    overwriting = programs.overwriting(programs.EXPORT)
    for program, names in {**_FILES, overwriting: _EXPORTED}.items():
        for name in names:
            for damage in _DAMAGES:
                yield Case(
                    "damaged study",
                    f"{program.name}: {name} {damage}",
                    functools.partial(_check, called, program, name, damage),
                )


def _check(called: Programs, program: Program, name: str, damage: str, directory: Path) -> str:
    shutil.copytree(called.wanted(program), directory, dirs_exist_ok=True)
    path = directory / program.out / name
    _DAMAGES[damage](path)
    ended = called.call(program, directory)
    if ended.status:
        named = path.name
        if not path.exists():
            named = "holds no run"
        elif damage == "another digit":
            named = "different settings"
        return programs.error_line(ended, str(path.parent), named)
    called.check(program, directory)
    return REPAIRED if path.name in ended.errors else SAME
