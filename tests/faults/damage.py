"""Ways to damage the files and folders of a run."""

from __future__ import annotations

import json
import os
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

# Damages a file.
Damage = Callable[[Path], None]


def edits(change: Callable[[bytes], bytes]) -> Damage:
    """Changes the contents."""

    def damage(path: Path) -> None:
        path.write_bytes(change(path.read_bytes()))

    return damage


def flipped(number: int) -> Damage:
    """Flips a bit, at another place for each number."""

    def change(contents: bytes) -> bytes:
        place = random.Random(number).randrange(max(len(contents), 1) * 8)
        changed = bytearray(contents or b"\0")
        changed[place // 8] ^= 1 << place % 8
        return bytes(changed)

    return edits(change)


def instead(make: Callable[[Path], object]) -> Damage:
    """Makes something else in its place."""

    def damage(path: Path) -> None:
        path.unlink()
        make(path)

    return damage


def replaced_by(other: Path) -> Damage:
    """Puts another file or directory in its place."""

    def damage(path: Path) -> None:
        missing(path)
        (shutil.copytree if other.is_dir() else shutil.copy)(other, path)

    return damage


def missing(path: Path) -> None:
    """Deletes it."""
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink()


def _directory(path: Path) -> None:
    missing(path)
    path.mkdir()
    (path / "thesis.tex").write_text("years of work")


def _pipe(path: Path) -> None:
    missing(path)
    os.mkfifo(path)


def _broken_link(path: Path) -> None:
    missing(path)
    path.symlink_to("nowhere")


def _file(path: Path) -> None:
    missing(path)
    path.write_text("something else")


# For files of any kind. Whoever opens a pipe to which nobody writes waits for ever.
OF_FILES: dict[str, Damage] = {
    "emptied": edits(lambda _: b""),
    "first byte lost": edits(lambda contents: contents[1:]),
    "last byte lost": edits(lambda contents: contents[:-1]),
    "second half lost": edits(lambda contents: contents[: len(contents) // 2]),
    "first half lost": edits(lambda contents: contents[len(contents) // 2 :]),
    "one byte too many": edits(lambda contents: contents + b"\0"),
    "written twice": edits(lambda contents: contents * 2),
    "a hole in the middle": edits(lambda c: c[: len(c) // 3] + bytes(16) + c[len(c) // 3 + 16 :]),
    "all zeros": edits(lambda contents: bytes(len(contents))),
    "random bytes": edits(lambda contents: random.Random(0).randbytes(len(contents))),
    "a text": edits(lambda _: b"something else\n"),
    "a web page": edits(lambda _: b"<!DOCTYPE html><html><body>404</body></html>"),
    "missing": missing,
    "a directory": _directory,
    "a pipe": _pipe,
    "a broken link": _broken_link,
    **{f"bit {number} flipped": flipped(number) for number in range(8)},
}
OF_FOLDERS: dict[str, Damage] = {
    "missing": missing,
    "a file": _file,
    "a pipe": _pipe,
    "a broken link": _broken_link,
}


def _lines(change: Callable[[list[bytes]], list[bytes]]) -> Damage:
    return edits(lambda contents: b"".join(change(contents.splitlines(keepends=True))))


def _digit(number: int) -> Damage:
    """Changes a digit, at another place for each number."""

    def change(contents: bytes) -> bytes:
        places = [place for place, byte in enumerate(contents) if chr(byte).isdigit()]
        place = random.Random(number).choice(places)
        digit = b"%d" % ((int(contents[place : place + 1]) + 1 + number) % 10)
        return contents[:place] + digit + contents[place + 1 :]

    return edits(change)


OF_TABLES: dict[str, Damage] = {
    "byte-order mark": edits(lambda contents: b"\xef\xbb\xbf" + contents),
    "UTF-16": edits(lambda contents: contents.decode().encode("utf-16")),
    "semicolons": edits(lambda contents: contents.replace(b",", b";")),
    "tabs": edits(lambda contents: contents.replace(b",", b"\t")),
    "decimal commas": edits(lambda c: c.replace(b",", b";").replace(b".", b",")),
    "line ends of Windows": edits(lambda contents: contents.replace(b"\n", b"\r\n")),
    "quotes": edits(lambda contents: b'"' + contents.replace(b",", b'","')),
    "a row missing": _lines(lambda lines: [*lines[:2], *lines[3:]]),
    "the first row missing": _lines(lambda lines: [lines[0], *lines[2:]]),
    "the last row missing": _lines(lambda lines: lines[:-1]),
    "a row cut off": _lines(lambda lines: [*lines[:2], lines[2][:9] + b"\n", *lines[3:]]),
    "two rows swapped": _lines(lambda lines: [lines[0], lines[2], lines[1], *lines[3:]]),
    "a row twice": _lines(lambda lines: [*lines[:2], *lines[1:]]),
    "an empty line": _lines(lambda lines: [*lines[:2], b"\n", *lines[2:]]),
    "no header": _lines(lambda lines: lines[1:]),
    "only the header": _lines(lambda lines: lines[:1]),
    "the header twice": _lines(lambda lines: [lines[0], *lines]),
    "another column": edits(lambda contents: contents.replace(b"ga,", b"gb,", 1)),
    "a column too many": edits(lambda contents: contents.replace(b"\n", b",1\n")),
    **{f"digit {number} changed": _digit(number) for number in range(8)},
}


def _value(change: Callable[[dict], object]) -> Damage:
    """Changes the value of a JSON file; `change` may change it in place."""

    def edit(contents: bytes) -> bytes:
        value = json.loads(contents)
        changed = change(value)
        return json.dumps(value if changed is None else changed, indent=2).encode() + b"\n"

    return edits(edit)


def _without(value: dict) -> None:
    del value[next(iter(value))]


OF_JSON: dict[str, Damage] = {
    "byte-order mark": OF_TABLES["byte-order mark"],
    "UTF-16": OF_TABLES["UTF-16"],
    "a list": edits(lambda _: b"[]"),
    "a number": edits(lambda _: b"17"),
    "null": edits(lambda _: b"null"),
    "an empty object": edits(lambda _: b"{}"),
    "too deep": edits(lambda _: b"[" * 100_000),
    "NaN": edits(lambda _: b"NaN"),
    "a key missing": _value(_without),
    "a key too many": _value(lambda value: value.update(other=1)),
    **{f"digit {number} changed": _digit(number) for number in range(8)},
}


def of(path: Path) -> Iterator[tuple[str, Damage]]:
    """The damages for a file or folder with this name."""
    if not path.suffix:
        yield from OF_FOLDERS.items()
        return
    yield from OF_FILES.items()
    if path.suffix == ".csv":
        yield from OF_TABLES.items()
    if path.suffix == ".json":
        yield from OF_JSON.items()
