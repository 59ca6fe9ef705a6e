"""The standard streams of a program, which may be closed, full, or unable to show a character.

What a program computes does not depend on whether its progress can be shown.
"""

from __future__ import annotations

import contextlib
import errno
import io
import os
import sys
from collections.abc import Iterator
from typing import TextIO

# Why standard output cannot be written.
_REASONS = {errno.ENOSPC, errno.EPIPE, errno.EIO, errno.EBADF, errno.EDQUOT, errno.EFBIG}


class _Quiet(io.TextIOWrapper):
    """A stream that is written in whole lines, as long as that succeeds."""

    _is_broken = False

    def write(self, text: str) -> int:
        if not self._is_broken:
            try:
                return super().write(text)
            except OSError:
                self._is_broken = True
        return len(text)

    def flush(self) -> None:
        if not self._is_broken:
            try:
                super().flush()
            except OSError:
                self._is_broken = True


def install(*, prints_results: bool = True) -> None:
    """Prepares the streams of this process.

    Args:
        prints_results: whether it matters that all of standard output is written. If not, it is
            written like standard error: as long as that succeeds, and in whole lines, even without
            a buffer (PYTHONUNBUFFERED), so that those of several processes are not mixed.
    """
    if prints_results and isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    for name in ["stderr"] if prints_results else ["stdout", "stderr"]:
        stream = getattr(sys, name)
        if isinstance(stream, io.TextIOWrapper) and not isinstance(stream, _Quiet):
            encoding = stream.encoding
            # The former object must not close the buffer when it is deleted.
            stream = _Quiet(
                stream.detach(), encoding=encoding, errors="backslashreplace", line_buffering=True
            )
            setattr(sys, name, stream)
            setattr(sys, f"__{name}__", stream)
    sys.stdout = sys.stdout or _nowhere()
    sys.stderr = sys.stderr or _nowhere()


def _nowhere() -> TextIO:
    """The place of a stream whose descriptor is closed, and may become that of any file."""
    return open(os.devnull, "w", encoding="utf-8")


@contextlib.contextmanager
def printing(program: str) -> Iterator[None]:
    """Ends a program with one line if standard output cannot be written within the block.

    Raises:
        SystemExit: with status 1.
    """
    try:
        yield
        # Also where there is no standard output.
        print(end="", flush=True)
    except OSError as error:
        reason = None if error.filename is not None else _problem(error)
        if reason is None:
            raise
        print(f"{program}: error: {reason}", file=sys.stderr)
        sys.exit(1)


def _problem(error: OSError) -> str | None:
    """Why standard output could not be written, if that is what an error without a file says."""
    if error.errno not in _REASONS:
        return None
    try:
        # Without a buffer (PYTHONUNBUFFERED), nothing is left to be flushed.
        print(flush=True)
    except OSError as again:
        # The interpreter would try it once more when it ends.
        sys.stdout = _nowhere()
        return f"standard output: {again.strerror}"
    return None
