"""Flagfiles: each is replaced by the flags in it, one to a line.

A flagfile may name others. A relative path in it is one from its own folder or, if there is no such
file, from the working directory.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator, Sequence

from tff_pcdd.errors import SettingError
from tff_pcdd.training.file_names import COMPARISON_TABLE, CONFIG, SWEEP_TABLE
from tff_pcdd.training.run_directory import path_settings

_FLAG = "flagfile"

# Files that show that a directory holds results; a sweep over methods has a folder of flagfiles.
_RESULTS = ("best.flags", COMPARISON_TABLE, CONFIG, SWEEP_TABLE, f"../{SWEEP_TABLE}")


def expand(arguments: Sequence[str]) -> list[str]:
    """The arguments, with the contents of flagfiles in their places.

    Raises:
        SettingError: a flagfile cannot be read, names itself, or lies among results and contains
            more than settings.
    """
    expanded: list[str] = []
    remaining = iter(arguments)
    for argument in remaining:
        flag, equals, path = _split(argument)
        if flag != _FLAG:
            expanded.append(argument)
        elif equals:
            expanded += _read(path)
        else:
            expanded += _read(next(remaining, ""))
    return expanded


def flags(arguments: Sequence[str]) -> Iterator[tuple[str, str]]:
    """The flags among arguments, with their values."""
    for argument, following in itertools.zip_longest(arguments, arguments[1:], fillvalue=""):
        flag, equals, value = _split(argument)
        if argument.startswith("-"):
            yield flag, value if equals else following


def _split(argument: str) -> tuple[str, str, str]:
    """The name of a flag, "=" if it is there, and the value; no name if this is not a flag."""
    flag, equals, value = argument.partition("=")
    return (flag.lstrip("-") if flag.startswith("-") else ""), equals, value


def _read(text: str, outer: tuple[str, ...] = ()) -> list[str]:
    """The flags in a flagfile; `outer` are the files that name it, the outermost first."""
    path = _find(os.path.expanduser(text), outer)
    if path in outer:
        raise SettingError(_FLAG, text, f"names itself, through {outer[-1]}")
    try:
        with open(path, encoding="utf-8") as file:
            lines = [line.strip() for line in file]
    except ValueError as error:
        raise SettingError(_FLAG, text, f"cannot be read: {error}") from None
    except OSError as error:
        named = f", as {outer[-1]} says" if outer else ""
        reason = f"cannot be read{named}: {error.strerror}"
        raise SettingError(_FLAG, text, reason) from None
    lines = [line for line in lines if line and not line.startswith(("#", "//"))]
    _check(text, path, lines)
    expanded: list[str] = []
    for line in lines:
        flag, _, value = _split(line)
        expanded += _read(value, (*outer, path)) if flag == _FLAG else [line]
    return expanded


def _find(path: str, outer: Sequence[str]) -> str:
    """The place of a flagfile that another one names: in the folder of that one, or from here."""
    beside = os.path.join(os.path.dirname(outer[-1]), path) if outer else path
    return os.path.normpath(beside if os.path.exists(beside) else path)


def _check(text: str, path: str, lines: Sequence[str]) -> None:
    """Refuses flagfiles among results that name modules, paths or further flagfiles.

    The programs write flagfiles with settings only. Results may come from anyone, whereas a
    flagfile elsewhere is as trusted as the command line that names it.
    """
    near = [os.path.join(os.path.dirname(path), file) for file in _RESULTS]
    if not any(map(os.path.exists, near)):
        return
    for inner, value in flags(lines):
        if inner in (_FLAG, "import", *path_settings()):
            raise SettingError(
                _FLAG,
                text,
                f"lies in a directory of results and names {inner}={value}, which is not "
                "followed; give this flag on the command line",
            )
