"""Flagfiles: each is replaced by the flags in it, one to a line.

A flagfile may name others. A relative path in it is one from its own folder or, if there is no such
file, from the working directory.

Flagfiles may come from anyone, for example among results. One in the folder `flags` of the clone,
and one whose contents the user has signed, may name any flag. The others may only name plain
settings, which execute, connect, write and delete nothing. `--trust_flagfile=PATH` signs a
flagfile; the programs sign those that they write.
"""

from __future__ import annotations

import io
import itertools
import os
import pathlib
from collections.abc import Iterator, Sequence

from tff_pcdd import files
from tff_pcdd.errors import SettingError, shown
from tff_pcdd.experiment.config import ExperimentConfig
from tff_pcdd.settings import describe
from tff_pcdd.training import signature
from tff_pcdd.training.run_directory import path_settings

_FLAG = "flagfile"
TRUST = "trust_flagfile"

_MOST_BYTES = 1_000_000

# The definitions of studies, which are plain settings, too. Not `grid`: it may name paths.
_STUDIES = ("algorithms", "baselines", "criterion", "partitions", "reduction", "rungs", "seeds")

# The flagfiles of a clone; an installed package has none.
_CLONE = os.path.realpath(pathlib.Path(__file__).parents[2] / "flags")


def expand(arguments: Sequence[str], *, only_trusted: bool = False) -> list[str]:
    """The arguments, with the contents of flagfiles in their places.

    Args:
        arguments: the command line without the program.
        only_trusted: leave out the contents of other flagfiles, without checking them: what they
            may name is only known when the user's modules have registered their components.

    Raises:
        SettingError: a flagfile cannot be read or signed, names itself, or contains more than plain
            settings without being trusted.
    """
    for flag, path in flags(arguments):
        if flag == TRUST:
            _sign(path)
    expanded: list[str] = []
    remaining = iter(arguments)
    for argument in remaining:
        flag, equals, path = _split(argument)
        if flag != _FLAG:
            expanded.append(argument)
        elif equals:
            expanded += _read(path, only_trusted)
        else:
            expanded += _read(next(remaining, ""), only_trusted)
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


def _read(text: str, only_trusted: bool, outer: tuple[str, ...] = ()) -> list[str]:
    """The flags in a flagfile; `outer` are the files that name it, the outermost first."""
    path = _find(os.path.expanduser(text), outer)
    if path in outer:
        raise SettingError(_FLAG, text, f"names itself, through {outer[-1]}")
    try:
        contents = files.read_bytes(path, _MOST_BYTES)
        lines = [line.strip() for line in io.StringIO(contents.decode(), newline=None)]
    except ValueError as error:
        raise SettingError(_FLAG, text, f"cannot be read: {error}") from None
    except OSError as error:
        named = f", as {outer[-1]} says" if outer else ""
        reason = f"cannot be read{named}: {error.strerror}"
        raise SettingError(_FLAG, text, reason) from None
    lines = [line for line in lines if line and not line.startswith(("#", "//"))]
    if not _is_trusted(path, contents):
        if only_trusted:
            return []
        _check(text, lines)
    expanded: list[str] = []
    for line in lines:
        flag, _, value = _split(line)
        expanded += _read(value, only_trusted, (*outer, path)) if flag == _FLAG else [line]
    return expanded


def _find(path: str, outer: Sequence[str]) -> str:
    """The place of a flagfile that another one names: in the folder of that one, or from here."""
    beside = os.path.join(os.path.dirname(outer[-1]), path) if outer else path
    return os.path.normpath(beside if os.path.exists(beside) else path)


def _sign(text: str) -> None:
    """Signs the contents of a flagfile."""
    try:
        signed = signature.sign_contents(files.read_bytes(os.path.expanduser(text), _MOST_BYTES))
    except OSError as error:
        raise SettingError(TRUST, text, f"cannot be read or signed: {error.strerror}") from None
    if not signed:
        reason = "cannot be signed: there is no place for a secret that only you can read"
        raise SettingError(TRUST, text, f"{reason}; set XDG_STATE_HOME to a folder of yours")


def _is_trusted(path: str, contents: bytes) -> bool:
    """Whether a flagfile is one of the clone, or has contents that the user has signed."""
    inside = os.path.realpath(path).startswith(f"{_CLONE}{os.sep}")
    return inside or signature.is_signed_contents(contents)


def _check(text: str, lines: Sequence[str]) -> None:
    """Refuses more than plain settings, and further flagfiles, each of which is checked itself."""
    plain = plain_settings() | {_FLAG}
    for name, value in flags(lines):
        if name not in plain and name.removeprefix("no") not in plain:
            raise SettingError(
                _FLAG,
                text,
                f"names {shown(f'{name}={value}', 120)}, which is not followed, because only plain "
                "settings are taken from a flagfile that you have not signed; give this flag on "
                f"the command line or, if you have read and trust the file, add --{TRUST}={text} "
                "once",
            )


def plain_settings() -> set[str]:
    """The settings of methods, data and training that execute, connect and write nothing."""
    known = {setting.name for setting in describe(ExperimentConfig)} - {*path_settings()}
    return known | {*_STUDIES}
