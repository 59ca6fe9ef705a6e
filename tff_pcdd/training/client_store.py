"""The states that clients keep between rounds, by client number, in memory or on disk.

Until the state of a client is first stored, its initial state is computed on every request. So
clients that never take part need no space.
"""

from __future__ import annotations

import abc
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tff_pcdd import files
from tff_pcdd.errors import DamagedFileError
from tff_pcdd.training import manifests, trees


class ClientStateStore(abc.ABC):
    """Base class: stores the states of clients, and describes them for checkpoints.

    Args:
        initial: computes the initial state of a client from its number.

    Attributes:
        inline: whether a checkpoint contains the states themselves.
    """

    inline: bool

    def __init__(self, initial: Callable[[int], Any]):
        self._initial = initial

    @abc.abstractmethod
    def get(self, client: int) -> Any:
        """The state of a client."""

    @abc.abstractmethod
    def put(self, client: int, state: Any, version: int) -> None:
        """Stores a client's state after round `version`."""

    @abc.abstractmethod
    def snapshot(self) -> tuple[dict[str, int], list[Any]]:
        """The round of each client's state, and the states that the checkpoint has to contain."""

    def checksums(self) -> dict[str, str]:
        """Checksums of the states in `snapshot`, by client, if they have files of their own."""
        return {}

    @abc.abstractmethod
    def sync(self) -> None:
        """Waits until the states that a checkpoint does not contain are on the disk."""

    @abc.abstractmethod
    def restore(
        self,
        versions: Mapping[str, int],
        states: list[Any],
        checksums: Mapping[str, str] | None = None,
    ) -> None:
        """Restores what `snapshot` and `checksums` returned.

        Raises:
            DamagedFileError: the file of a state is missing or damaged; nothing is restored.
        """

    def forget_before(self, version: int) -> None:
        """Deletes states that no checkpoint of round `version` or later needs."""
        del version

    def forget_after(self, version: int) -> None:
        """Deletes states of rounds after `version`, which will be computed again."""
        del version


class MemoryStore(ClientStateStore):
    """Keeps states in memory; a checkpoint contains all of them."""

    inline = True

    def __init__(self, initial: Callable[[int], Any]):
        super().__init__(initial)
        self._states: dict[int, Any] = {}
        self._versions: dict[int, int] = {}

    def get(self, client):
        state = self._states.get(client)
        return self._initial(client) if state is None else state

    def put(self, client, state, version):
        self._states[client] = trees.to_numpy(state)
        self._versions[client] = version

    def snapshot(self):
        clients = sorted(self._states)
        versions = {str(client): self._versions[client] for client in clients}
        return versions, [self._states[client] for client in clients]

    def sync(self):
        """A checkpoint contains all states."""

    def restore(self, versions, states, checksums=None):
        clients = [int(client) for client in versions]
        self._versions = dict(zip(clients, versions.values(), strict=True))
        self._states = dict(zip(clients, states, strict=True))


class DiskStore(ClientStateStore):
    """Keeps each state in a file; a checkpoint contains only the round of each client's state.

    Memory does not grow with the number of clients. No file that a checkpoint needs is overwritten,
    so a run that is killed in the middle of a round still has the states of its last checkpoint. A
    file is compared with its checksum whenever it is read.

    Args:
        initial: computes the initial state of a client from its number.
        directory: the directory of the files; created when it is first needed.
    """

    inline = False

    def __init__(self, initial: Callable[[int], Any], directory: Path):
        super().__init__(initial)
        self._directory = directory
        self._versions: dict[int, list[int]] = {}
        self._checksums: dict[int, str] = {}
        self._changed: set[Path] = set()
        self._template = None

    def _path(self, client: int, version: int) -> Path:
        return self._directory / f"client_{client:06d}" / f"round_{version:06d}.npz"

    def get(self, client):
        versions = self._versions.get(client)
        if not versions:
            return self._initial(client)
        if self._template is None:
            self._template = self._initial(client)
        path = self._path(client, versions[-1])
        return trees.load_tree(path, self._template, self._checksums.get(client))

    def put(self, client, state, version):
        path = self._path(client, version)
        files.make_directory(path.parent)
        # Waiting for each name separately would take longer than writing the states.
        self._checksums[client] = trees.save_tree(path, state)
        self._changed.add(path.parent)
        versions = self._versions.setdefault(client, [])
        if version not in versions:
            versions.append(version)

    def snapshot(self):
        return {str(client): versions[-1] for client, versions in self._versions.items()}, []

    def checksums(self):
        return {str(client): checksum for client, checksum in self._checksums.items()}

    def sync(self):
        for folder in self._changed:
            files.sync_directory(folder)
        self._changed.clear()

    def restore(self, versions, states, checksums=None):
        checksums = {int(client): checksum for client, checksum in (checksums or {}).items()}
        kept = {}
        for client, newest in ((int(name), version) for name, version in versions.items()):
            path = self._path(client, newest)
            if client in checksums:
                manifests.check_file(path, checksums[client])
            elif not path.exists():
                raise DamagedFileError(f"{path} is missing")
            # Older and newer files belong to other checkpoints.
            kept[client] = sorted(v for v in map(_version, _states(path.parent)) if v <= newest)
        self._versions, self._checksums = kept, checksums

    def forget_before(self, version):
        for client, versions in self._versions.items():
            while len(versions) > 1 and versions[1] <= version:
                files.remove(self._path(client, versions.pop(0)))

    def forget_after(self, version):
        for folder in self._directory.glob("client_*"):
            for path in _states(folder):
                if _version(path) > version:
                    files.remove(path)


def _states(folder: Path) -> list[Path]:
    """The files of a client's states in its folder."""
    found = folder.glob("round_*.npz")
    return [path for path in found if path.stem[6:].isdecimal() and not path.is_dir()]


def _version(path: Path) -> int:
    return int(path.stem.removeprefix("round_"))
