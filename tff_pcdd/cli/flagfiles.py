"""Files of flags: flagfiles, and configurations in TOML or JSON; what they name takes their place.

A flagfile has one flag to a line. A configuration has settings by their names; tables in it only
group them, and the config.json of a run is one. Either may name others. A relative path in it is
one from its own folder or, if there is no such file, from the working directory.

These files may come from anyone, for example among results. One in the folder `flags` of the clone,
and one whose contents the user has signed, may name any flag. The others may only name plain
settings, which execute, connect, write and delete nothing. `--trust_flagfile=PATH` signs a file;
the programs sign the flagfiles that they write.
"""

from __future__ import annotations

import io
import itertools
import logging
import os
import pathlib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from tff_pcdd import files
from tff_pcdd.cli import configurations
from tff_pcdd.errors import SettingError, shown
from tff_pcdd.experiment.config import ExperimentConfig
from tff_pcdd.settings import describe
from tff_pcdd.text import quoted
from tff_pcdd.training import signature
from tff_pcdd.training.run_directory import path_settings

if TYPE_CHECKING:
    from tff_pcdd.cli.flags import Flags

_logger = logging.getLogger(__name__)

FLAGFILE = "flagfile"
CONFIG = "config"
TRUST = "trust_flagfile"
_FILES = (FLAGFILE, CONFIG)

_MOST_BYTES = 1_000_000

# The definitions of studies, which are plain settings, too. Not `grid`: it may name paths.
_STUDIES = (
    *("algorithms", "baselines", "criterion", "halving", "partitions", "reduction", "rungs"),
    "seeds",
)

# Not a setting of experiments, but it changes results only by rounding.
_COMPILE = "compile"

# A flag of earlier versions, and the values with which it was on.
_OLD = "jit_compile"
_TRUE = ("", "true", "t", "1")

# Flags that are repeated for further values; those of other flags are separated by commas.
_REPEATED = ("import", "grid", *_FILES)

# The flagfiles of a clone; an installed package has none.
_CLONE = os.path.realpath(pathlib.Path(__file__).parents[2] / "flags")


def expand(
    arguments: Sequence[str], program: Flags | None = None, *, only_trusted: bool = False
) -> list[str]:
    """The arguments, with the contents of flagfiles and configurations in their places.

    Args:
        arguments: the command line without the program.
        program: the flags of the program, by which names and types of values are checked.
        only_trusted: leave out the contents of other files, without checking them: what they may
            name is only known when the user's modules have registered their components.

    Raises:
        SettingError: a file cannot be read or signed, names itself or an unknown setting, has a
            value of the wrong type, or contains more than plain settings without being trusted.
    """
    for flag, path in flags(arguments):
        if flag == TRUST:
            _sign(path)
    expanded: list[str] = []
    remaining = iter(arguments)
    for argument in remaining:
        flag, equals, path = _split(argument)
        if flag in _FILES:
            reader = _Reader(flag, program, only_trusted)
            expanded += reader.read(path if equals else next(remaining, ""))
        else:
            expanded.append(argument)
    return expanded


def flags(arguments: Sequence[str]) -> Iterator[tuple[str, str]]:
    """The flags among arguments, with their values."""
    for argument, following in itertools.zip_longest(arguments, arguments[1:], fillvalue=""):
        flag, equals, value = _split(argument)
        if argument.startswith("-"):
            yield flag, value if equals else following


def plain_settings() -> set[str]:
    """The settings of methods, data and training that execute, connect and write nothing."""
    known = {setting.name for setting in describe(ExperimentConfig)} - {*path_settings()}
    return known | {*_STUDIES, _COMPILE}


def _split(argument: str) -> tuple[str, str, str]:
    """The name of a flag, "=" if it is there, and the value; no name if this is not a flag."""
    flag, equals, value = argument.partition("=")
    return (flag.lstrip("-") if flag.startswith("-") else ""), equals, value


class _Reader:
    """Reads a file of flags, and those that it names.

    Args:
        flag: the flag that names the file: `flagfile` or `config`.
        program, only_trusted: as for `expand`.
        outer: the files that name it, the outermost first.
    """

    def __init__(
        self, flag: str, program: Flags | None, only_trusted: bool, outer: tuple[str, ...] = ()
    ):
        self._flag, self._outer = flag, outer
        self._program, self._only_trusted = program, only_trusted

    def read(self, text: str) -> list[str]:
        """The flags in the file that the text names."""
        path = _find(os.path.expanduser(text), self._outer)
        if path in self._outer:
            raise SettingError(self._flag, text, f"names itself, through {self._outer[-1]}")
        try:
            contents = files.read_bytes(path, _MOST_BYTES)
            found = self._flags(text, path, contents.decode())
        except OSError as error:
            named = f", as {self._outer[-1]} says" if self._outer else ""
            reason = f"cannot be read{named}: {error.strerror}"
            raise SettingError(self._flag, text, reason) from None
        except SettingError:
            raise
        except (ValueError, RecursionError) as error:
            raise SettingError(self._flag, text, f"cannot be read: {error}") from None
        trusted = _is_trusted(path, contents)
        if self._only_trusted and not trusted:
            return []
        lines = [self._renamed(text, line) for line in found]
        if not trusted:
            self._check(text, path, lines)
        expanded: list[str] = []
        for line in lines:
            flag, _, value = _split(line)
            if flag in _FILES:
                inner = _Reader(flag, self._program, self._only_trusted, (*self._outer, path))
                expanded += inner.read(value)
            else:
                expanded.append(line)
        return expanded

    def _renamed(self, text: str, line: str) -> str:
        """A flag under its present name."""
        name, _, value = _split(line)
        if name not in (_OLD, f"no{_OLD}"):
            return line
        now = "step" if name == _OLD and value.lower() in _TRUE else "off"
        if not self._only_trusted:
            _logger.warning("%s=%s: %s is read as compile=%s", self._flag, text, line, now)
        return f"--{_COMPILE}={now}"

    def _check(self, text: str, path: str, lines: Sequence[str]) -> None:
        """Refuses more than plain settings, and further files, each of which is checked itself."""
        followed = plain_settings() | {*_FILES}
        if self._flag == CONFIG:
            # The run of this user, on this machine.
            paths = {name: value for name, value in flags(lines) if name in path_settings()}
            if signature.is_signed(pathlib.Path(path).parent, paths):
                followed |= paths.keys()
        for name, value in flags(lines):
            if name not in followed and name.removeprefix("no") not in followed:
                given = shown(f"{name}={value}", 120)
                if self._program is not None and (unknown := self._program.unknown(name)):
                    raise SettingError(self._flag, text, f"{given.removesuffix('=')}: {unknown}")
                raise SettingError(
                    self._flag,
                    text,
                    f"names {given}, which is not followed, because only plain settings are taken "
                    "from a file that you have not signed; give this flag on the command line or, "
                    f"if you have read and trust the file, add --{TRUST}={text} once",
                )

    def _flags(self, text: str, path: str, contents: str) -> list[str]:
        """The flags in a file, or those that its settings stand for.

        Raises:
            ValueError: it is damaged.
            SettingError: a name or a value cannot be used.
        """
        if self._flag == FLAGFILE:
            lines = [line.strip() for line in io.StringIO(contents, newline=None)]
            return [line for line in lines if line and not line.startswith(("#", "//"))]
        settings = configurations.read(path, contents)
        if not self._only_trusted:
            settings = configurations.as_given(path, settings)
        lines = []
        for name, value in settings.items():
            if isinstance(value, dict):
                # The modules of a run, which are imported only if the command line names them.
                continue
            try:
                texts = configurations.texts(value)
                if self._program is not None and name not in (*_FILES, _OLD):
                    name = self._program.also(name)
                    self._program.check(name, value)
            except ValueError as error:
                given = f"{shown(name, 120)}={shown(value, 120)}"
                raise SettingError(self._flag, text, f"{given}: {error}") from None
            if name not in _REPEATED:
                # A name in a list may have a comma itself.
                texts = [quoted(*texts) if isinstance(value, list) else ",".join(texts)]
            lines += [f"--{name}={each}" for each in texts]
        return lines


def _find(path: str, outer: Sequence[str]) -> str:
    """The place of a file that another one names: in the folder of that one, or from here."""
    beside = os.path.join(os.path.dirname(outer[-1]), path) if outer else path
    return os.path.normpath(beside if os.path.exists(beside) else path)


def _sign(text: str) -> None:
    """Signs the contents of a file."""
    try:
        signed = signature.sign_contents(files.read_bytes(os.path.expanduser(text), _MOST_BYTES))
    except OSError as error:
        raise SettingError(TRUST, text, f"cannot be read or signed: {error.strerror}") from None
    if not signed:
        reason = "cannot be signed: there is no place for a secret that only you can read"
        raise SettingError(TRUST, text, f"{reason}; set XDG_STATE_HOME to a folder of yours")


def _is_trusted(path: str, contents: bytes) -> bool:
    """Whether a file is one of the clone, or has contents that the user has signed."""
    inside = os.path.realpath(path).startswith(f"{_CLONE}{os.sep}")
    return inside or signature.is_signed_contents(contents)
