"""JSON files of data sets, whose size and depth are bounded before they are parsed."""

from __future__ import annotations

import dataclasses
import json
import mmap
import pathlib
import re
from typing import Any, NamedTuple

from tff_pcdd.data.sources import LIMITS, DirectorySource
from tff_pcdd.data.sources._places import check_file
from tff_pcdd.errors import DataError
from tff_pcdd.settings import WIDE, option

# A string; strings are skipped as a whole when brackets are searched for.
STRING = rb'"[^"\\]*(?:\\.[^"\\]*)*"'

# A quote that begins no string means that the string has no end. It has to be found as such, or the
# search would try every following quote too.
_STOPS = re.compile(STRING + rb'|[\[\]{}"]', re.DOTALL)

_CLOSING = {b"{": b"}", b"[": b"]"}


class Limits(NamedTuple):
    """Bounds of a JSON value.

    Attributes:
        max_bytes: the most bytes of a value that is parsed at once.
        max_depth: the most lists and objects within each other.
    """

    max_bytes: int = LIMITS["max_json_bytes"]
    max_depth: int = LIMITS["max_json_depth"]


@dataclasses.dataclass(frozen=True)
class JsonSource(DirectorySource):
    """Mixin for data sets with JSON files."""

    max_json_bytes: int = option(
        LIMITS["max_json_bytes"],
        "The most bytes of JSON that are parsed at once: the data of a user, or a file. Parsing "
        "takes about twenty times as much memory.",
        minimum=1,
        maximum=WIDE,
    )
    max_json_depth: int = option(
        LIMITS["max_json_depth"],
        "The most lists and objects within each other in JSON that is parsed.",
        minimum=1,
        maximum=200,
    )

    @property
    def limits(self) -> Limits:
        """Both limits."""
        return Limits(self.max_json_bytes, self.max_json_depth)


def read_json(path: pathlib.Path, limits: Limits) -> Any:
    """Parses a whole file within the limits."""
    check_file(path, max_bytes=limits.max_bytes, limit="max_json_bytes")
    try:
        text = path.read_bytes()
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}") from error
    start = len(text) - len(text.lstrip())
    if text[start : start + 1] in (b"{", b"["):
        end_of_brackets(text, start, path, limits)
    return parse(text, start, len(text), path, limits)


def parse(
    text: bytes | mmap.mmap,
    start: int,
    end: int,
    path: pathlib.Path,
    limits: Limits,
    user: str = "",
) -> Any:
    """Parses the JSON value in the bytes from `start` to `end`, whose depth has been checked.

    The file and the user whose data they are stand in messages.
    """
    where = f"{path}: user {user!r:.80}" if user else str(path)
    if end - start > limits.max_bytes:
        raise DataError(
            f"{where}: {end - start} bytes of JSON after byte {start} are more than the "
            f"{limits.max_bytes} that max_json_bytes allows"
        )
    try:
        return json.loads(text[start:end], object_pairs_hook=_unique)
    except (ValueError, RecursionError) as error:
        raise DataError(f"{where}: not JSON: {error} after byte {start}") from error


def end_of_brackets(text: bytes | mmap.mmap, start: int, path: pathlib.Path, limits: Limits) -> int:
    """The end of the object or list that starts at a byte; refused if it is too deep."""
    closing: list[bytes] = []
    for stop in _STOPS.finditer(text, start):
        token = text[stop.start() : stop.start() + 1]
        if token in _CLOSING:
            closing.append(_CLOSING[token])
        elif token != b'"':
            if closing.pop() != token:
                break
        elif stop.end() - stop.start() == 1:
            break
        if len(closing) > limits.max_depth:
            raise DataError(
                f"{path}: at byte {stop.start()}, more than {limits.max_depth} lists and objects "
                "are within each other; max_json_depth allows no more"
            )
        if not closing:
            return stop.end()
    raise DataError(
        f"{path}: not JSON: the value that starts at byte {start} has no end; the file is truncated"
    )


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object; of equal keys, `json` would keep the last one without a word."""
    values = dict(pairs)
    if len(values) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"key {twice!r:.80} occurs twice")
    return values
