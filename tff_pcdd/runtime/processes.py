"""The processes that a process has started, and how they ended."""

import contextlib
import signal
import tempfile
from pathlib import Path


def children(pid: int) -> list[int]:
    """The ids of all descendants of a process."""
    parents = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            with contextlib.suppress(OSError):
                # The name of the process, in parentheses, may contain any character.
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
                parents[int(entry.name)] = int(fields[1])
    found, pending = [], [pid]
    while pending:
        parent = pending.pop()
        below = [child for child, its_parent in parents.items() if its_parent == parent]
        found += below
        pending += below
    return found


def describe_end(code: int) -> str:
    """How a process with a return code of `subprocess` ended, as the end of a sentence."""
    if code < 0:
        return f"was terminated by signal {-code} ({signal.strsignal(-code)})"
    return f"exited with status {code}"


def temporary_directory(longest: int) -> str:
    """The directory for temporary files, or /tmp if its path is longer: addresses are short."""
    usual = tempfile.gettempdir()
    return usual if len(usual) <= longest else "/tmp"
