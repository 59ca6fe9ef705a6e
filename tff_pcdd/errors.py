"""Errors that a user can correct; they say what is wrong and where."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from typing import Any


class SettingError(ValueError):
    """A setting that cannot be used.

    Attributes:
        setting: name of the setting, as in config.json.
        value: the value that was given; None if none was.
        reason: what is wrong with the value, and what is expected.
        kind: what the reasons have in common with which different methods are refused, if these
            differ in more than the method's name; equal to `reason` by default.

    Example:
        >>> error = SettingError("rounds", 0, "must be at least 1")
        >>> str(error)
        'rounds=0: must be at least 1'
        >>> error.setting
        'rounds'
    """

    def __init__(self, setting: str, value: Any, reason: str, *, kind: str = ""):
        super().__init__(setting, value, reason)
        self.setting = setting
        self.value = value
        self.reason = reason
        self.kind = kind or reason

    @property
    def given(self) -> str:
        """The setting as it was given."""
        name = shown(self.setting)
        return name if self.value is None else f"{name}={shown(self.value)}"

    def __str__(self) -> str:
        return f"{self.given}: {self.reason}"


def one_of(value: Any, names: Iterable[str], *others: str) -> str:
    """The reason why a value that is none of some names is refused, with the name it resembles.

    Args:
        value: the value.
        names: the names.
        others: further values that are none of the names.

    Example:
        >>> one_of("fedgla", ["fedavg", "fedgela", "fedmr"])
        'choose one of fedavg, fedgela, fedmr; did you mean fedgela?'
        >>> one_of("sgd", ["fedavg", "fedgela", "fedmr"])
        'choose one of fedavg, fedgela, fedmr'
        >>> one_of("fedgla", ["fedgela", "fedmr"], "fedmt")
        'choose one of fedgela, fedmr; did you mean fedgela, fedmr?'
        >>> one_of("fedgala", ["fedala", "fedgela", "fedmr"])
        'choose one of fedala, fedgela, fedmr; did you mean fedala or fedgela?'
        >>> one_of("norm", [])
        'none is registered; import the module that registers it'
    """
    names = list(names)
    if not names:
        return "none is registered; import the module that registers it"
    meant = dict.fromkeys(" or ".join(nearest(each, names)) for each in (value, *others))
    return f"choose one of {', '.join(names)}{question(list(filter(None, meant)), ', ')}"


def nearest(value: Any, names: Iterable[str]) -> list[str]:
    """The names that a misspelled one resembles most: those that are equally near, at most three.

    Example:
        >>> nearest("rya", ["inprocess", "ray", "tff"])
        ['ray']
        >>> nearest("mnsit", ["digits", "fashion_mnist"]), nearest("st mary", ["St. Mary"])
        (['fashion_mnist'], ['St. Mary'])
    """
    given = value[:100].lower() if isinstance(value, str) else ""
    found: list[tuple[int, float, str]] = []
    for name in names:
        lower = name.lower()
        alike = difflib.SequenceMatcher(None, lower, given).ratio()
        typos = _typos(given, lower)
        # A word of the name counts too, but less than the whole name.
        of_word = min(_typos(given, word) for word in lower.split("_"))
        is_word = of_word < 2 and len(given) > 3
        if alike >= 0.7 or is_word or (typos == 1 and len(given) > 2):
            found.append((min(typos, of_word + 2) if is_word else typos, -alike, name))
    return [name for typos, _, name in sorted(found) if typos == min(found)[0]][:3]


def _typos(given: str, name: str) -> int:
    """The fewest letters to insert, delete, replace, or swap with the next, in the second name."""
    before: list[int] = []
    row = list(range(len(name) + 1))
    for i, letter in enumerate(given):
        earlier, before, row = before, row, [i + 1]
        for j, other in enumerate(name):
            best = min(row[j] + 1, before[j + 1] + 1, before[j] + (letter != other))
            if i and j and (letter, other) == (name[j - 1], given[i - 1]):
                best = min(best, earlier[j - 1] + 1)
            row.append(best)
    return row[-1]


def question(names: Sequence[str], separator: str = " or ", *, prefix: str = "") -> str:
    """The end of an error that asks whether one of some names was meant; empty without any."""
    if not names:
        return ""
    return f"; did you mean {separator.join(prefix + name for name in names)}?"


class OtherRunError(SettingError):
    """A directory that holds a run with different settings."""


class LockedError(SettingError):
    """A directory to which another process is writing."""


class UnwritableError(SettingError):
    """A directory in which no file can be created."""


class DataError(ValueError):
    """Data that cannot be used; the message is one line that says what is expected."""


class DamagedFileError(DataError):
    """A file of a run that is missing, or whose contents are not what was written."""


class WriteError(OSError):
    """A file or directory that cannot be written: the disk is full or read-only, or similar.

    What was complete before stays as it was.

    Attributes:
        errno: the number of the system's error.
        strerror: the reason.
        filename: the path.

    Example:
        >>> import errno
        >>> print(WriteError(errno.ENOSPC, "No space left on device", "runs/a/metrics.csv"))
        cannot write runs/a/metrics.csv: No space left on device
    """

    def __str__(self) -> str:
        return f"cannot write {self.filename}: {self.strerror}"


def printable(text: str) -> str:
    """A text of any length on one line: line breaks and what cannot be shown are escaped.

    Example:
        >>> print(printable("it's\\x07\\nhere"))
        it's\\x07\\nhere
    """
    return text if text.isprintable() else repr(text)[1:-1]


def shown(value: Any, length: int = 300) -> str:
    """A value as it is shown in an error: on one line, without control characters, and not long.

    Example:
        >>> shown("first\\nsecond"), shown("x" * 8, length=4)
        ('first\\\\nsecond', 'xxxx… (8 characters)')
    """
    text = printable(str(value))
    return text if len(text) <= length else f"{text[:length]}… ({len(text)} characters)"


# Errors of the runtimes.


class RuntimeStartError(RuntimeError):
    """A runtime could not be started; the message names the reason."""


class WorkerDiedError(RuntimeError):
    """The local worker process ended while it was needed."""


class ActorsLostError(RuntimeError):
    """Clients' work was lost with its Ray actor several times, or no actor is left."""
