"""The processes that a process has started."""

import contextlib
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
