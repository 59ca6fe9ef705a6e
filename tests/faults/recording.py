"""Records which states a directory passes through, for processes that are killed and power cuts."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.faults import disk

# The contents of a directory by relative path: bytes of files, None for directories.
Tree = dict[str, bytes | None]
States = Callable[["Recorder", str, Path], Iterator[tuple[str, Tree]]]
Choice = Callable[[], bool]


@dataclasses.dataclass(frozen=True)
class Moment:
    """A state that a kill or a power cut may leave.

    Attributes:
        name: the operation that would have been the next, and how much was lost.
        tree: the contents of the directory.
        reported: the last value of `Recorder.reported`.
    """

    name: str
    tree: Tree
    reported: int


def read_tree(directory: Path) -> Tree:
    """The contents of a directory."""
    return {
        str(path.relative_to(directory)): None if path.is_dir() else path.read_bytes()
        for path in sorted(directory.rglob("*"))
    }


def write_tree(tree: Tree, directory: Path) -> None:
    """Makes a directory with these contents."""
    directory.mkdir(parents=True, exist_ok=True)
    for name, contents in sorted(tree.items()):
        path = directory / name
        if contents is None:
            path.mkdir(exist_ok=True)
        else:
            path.write_bytes(contents)


class Recorder:
    """Notes which states faults may leave, before every file operation in a directory.

    What is in the directory at first counts as being on the disk. Later, files have the contents,
    and directories the names, that they had when they were last synchronized.

    Args:
        root: the directory.
        states: gives the states that a fault may leave before an operation on a path, each with a
            name; its arguments are the recorder, the operation and the path.

    Attributes:
        moments: the states, each of them once.
        reported: a number that the recorded program may set, such as of a round.
    """

    def __init__(self, root: Path, states: States):
        self.root = root
        self.moments: list[Moment] = []
        self.reported = 0
        self._states = states
        self._seen: set[int] = set()
        # As long as a file is open, its number is not given to another one.
        self._held: dict[int, int] = {}
        self._contents: dict[int, bytes] = {}
        self._names: dict[int, dict[str, int]] = {}
        self._hold()
        for inode in self._held:
            self._note_synchronized(inode)

    def after_power_cut(self, latest_name: Choice, latest_contents: Choice) -> Tree:
        """A state that a power cut may leave now.

        Args:
            latest_name: decides for each entry of a directory whether it is as it is now, or as
                when the directory was last synchronized.
            latest_contents: decides the same for the contents of each file.
        """
        tree: Tree = {}

        def restore(inode: int, prefix: str) -> None:
            current, durable = self._current_names(inode), self._names.get(inode, {})
            for name in sorted({*current, *durable}):
                number = (current if latest_name() else durable).get(name)
                if number is None:
                    continue
                if self._is_folder(number):
                    tree[prefix + name] = None
                    restore(number, f"{prefix}{name}/")
                elif latest_contents():
                    tree[prefix + name] = self._read(number)
                else:
                    tree[prefix + name] = self._contents.get(number, b"")

        restore(self.root.stat().st_ino, "")
        return tree

    @contextlib.contextmanager
    def recording(self) -> Iterator[None]:
        """Notes the states before the operations of the block, and the one after it."""
        with disk.intercepted(self.root, self._before):
            yield
        self._note("the end", self.root)
        for descriptor in self._held.values():
            os.close(descriptor)

    def _before(self, operation: str, name: str) -> None:
        path = Path(name)
        # What a file has at last is noted when it is synchronized.
        if operation != disk.WRITE:
            self._note(operation, path)
        if operation == disk.SYNC and path.exists():
            self._note_synchronized(path.stat().st_ino)

    def _note(self, operation: str, path: Path) -> None:
        """Notes the possible states before an operation."""
        self._hold()
        for state, tree in self._states(self, operation, path):
            key = hash((tuple(sorted(tree.items(), key=str)), self.reported))
            if key not in self._seen:
                self._seen.add(key)
                where = path.relative_to(self.root)
                name = f"{len(self.moments):03d}, before {operation} {where}{state}"
                self.moments.append(Moment(name, tree, self.reported))

    def _note_synchronized(self, inode: int) -> None:
        if self._is_folder(inode):
            self._names[inode] = self._current_names(inode)
        else:
            self._contents[inode] = self._read(inode)

    def _hold(self) -> None:
        for path in [self.root, *self.root.rglob("*")]:
            inode = path.stat().st_ino
            if inode not in self._held:
                self._held[inode] = os.open(path, os.O_RDONLY)

    def _is_folder(self, inode: int) -> bool:
        return stat.S_ISDIR(os.fstat(self._held[inode]).st_mode)

    def _current_names(self, inode: int) -> dict[str, int]:
        with os.scandir(self._held[inode]) as entries:
            return {entry.name: entry.inode() for entry in entries}

    def _read(self, inode: int) -> bytes:
        return os.pread(self._held[inode], 1 << 30, 0)
