"""Intercepts what Python code changes on a disk, to fail it or to look at the disk before it."""

from __future__ import annotations

import builtins
import contextlib
import io
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

# Kinds of operations.
CREATE, WRITE, SYNC, RENAME, MAKE, DELETE = "create", "write", "sync", "rename", "make", "delete"

# What is asked before an operation: its kind and the path. It may raise an OSError.
Before = Callable[[str, str], None]
# The same for a path, a file's number, or a path from a folder's number.
_Announce = Callable[..., None]

_open, _os_open, _fsync = open, os.open, os.fsync


class _Raw(io.FileIO):
    """A file that announces each write of its buffer."""

    before: _Announce

    def write(self, data):
        self.before(WRITE, self.fileno())
        return super().write(data)


class _Interception:
    def __init__(self, directory: Path, before: Before):
        self._directory = os.path.realpath(directory)
        self._before = before
        # Several threads may wait for files.
        self._lock = threading.RLock()
        self._inside = False

    def announce(self, kind: str, path: str | int | Path, dir_fd: int | None = None) -> None:
        """Asks before an operation in the directory, unless it happens within such a question."""
        if isinstance(path, int):
            path = os.readlink(f"/proc/self/fd/{path}")
        elif dir_fd is not None:
            path = os.path.join(os.readlink(f"/proc/self/fd/{dir_fd}"), path)
        path = os.path.abspath(path)
        if not f"{path}/".startswith(f"{self._directory}/"):
            return
        with self._lock:
            if self._inside:
                return
            self._inside = True
            try:
                self._before(kind, path)
            finally:
                self._inside = False

    def open(self, file, mode="r", buffering=-1, encoding=None, errors=None, newline=None, **rest):
        """Replaces `open`: announces that a file is created, and each write to it."""
        if isinstance(file, int) or not set(mode) & set("wax+"):
            return _open(file, mode, buffering, encoding, errors, newline, **rest)
        if rest.get("opener") is None:
            self.announce(CREATE, file)
        raw = _Raw(file, mode.replace("b", "").replace("t", ""), **rest)
        raw.before = self.announce
        if buffering == 0:
            return raw
        buffered = (io.BufferedRandom if "+" in mode else io.BufferedWriter)(raw)
        if "b" in mode:
            return buffered
        return io.TextIOWrapper(buffered, encoding, errors, newline)

    def os_open(self, path, flags, *arguments, **rest):
        if flags & os.O_CREAT or flags & os.O_TMPFILE == os.O_TMPFILE:
            self.announce(CREATE, path, rest.get("dir_fd"))
        return _os_open(path, flags, *arguments, **rest)

    def fsync(self, descriptor):
        self.announce(SYNC, descriptor)
        return _fsync(descriptor)

    def announcing(self, kind: str, function: Callable) -> Callable:
        def call(path, *arguments, **rest):
            self.announce(kind, path, rest.get("dir_fd", rest.get("src_dir_fd")))
            return function(path, *arguments, **rest)

        return call


@contextlib.contextmanager
def intercepted(directory: Path, before: Before) -> Iterator[None]:
    """Calls `before(kind, path)` before each operation that changes something in a directory."""
    interception = _Interception(directory, before)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(builtins, "open", interception.open)
        patch.setattr(io, "open", interception.open)
        patch.setattr(os, "open", interception.os_open)
        patch.setattr(os, "fsync", interception.fsync)
        for name, kind in {
            "replace": RENAME,
            "rename": RENAME,
            "mkdir": MAKE,
            "unlink": DELETE,
            "remove": DELETE,
            "rmdir": DELETE,
        }.items():
            patch.setattr(os, name, interception.announcing(kind, getattr(os, name)))
        # What shutil has looked up, and compares with the functions in os.
        patch.setattr(os, "supports_dir_fd", {*os.supports_dir_fd, os.open, os.unlink, os.rmdir})
        yield
