"""The states that clients keep between rounds, by client number, in memory.

`disk_store` keeps them on disk.

Until the state of a client is first stored, its initial state is computed on every request. So
clients that never take part need no space.
"""

from __future__ import annotations

import abc
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from etils import epy

with epy.lazy_imports():
    import tensorflow as tf


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

    @property
    @abc.abstractmethod
    def clients(self) -> list[int]:
        """The clients whose states are stored, in ascending order."""

    @abc.abstractmethod
    def get(self, client: int) -> Any:
        """The state of a client."""

    @abc.abstractmethod
    def put(self, client: int, state: Any, version: int) -> None:
        """Stores a client's state after round `version`."""

    @abc.abstractmethod
    def snapshot(self) -> tuple[dict[str, Any], list[Any]]:
        """What a checkpoint has to contain; what it does not contain is on the disk then.

        Returns:
            A description of the states for JSON, and the states that the checkpoint has to contain.
        """

    @abc.abstractmethod
    def restore(self, description: Mapping[str, Any], states: list[Any]) -> None:
        """Restores what `snapshot` returned.

        Raises:
            DamagedFileError: the file of a state is missing or damaged; nothing is restored.
        """

    def forget_before(self, version: int, kept: int | None = None) -> None:
        """Deletes states that no checkpoint of round `kept`, `version` or later needs."""
        del version, kept

    def forget_after(self, version: int) -> None:
        """Deletes states of rounds after `version`, which will be computed again."""
        del version


class MemoryStore(ClientStateStore):
    """Keeps states in memory; a checkpoint contains all of them, and the round of each."""

    inline = True

    def __init__(self, initial: Callable[[int], Any]):
        super().__init__(initial)
        self._states: dict[int, Any] = {}
        self._versions: dict[int, int] = {}

    @property
    def clients(self):
        return sorted(self._states)

    def get(self, client):
        state = self._states.get(client)
        return self._initial(client) if state is None else state

    def put(self, client, state, version):
        self._states[client] = to_numpy(state)
        self._versions[client] = version

    def snapshot(self):
        versions = {str(client): self._versions[client] for client in self.clients}
        return versions, [self._states[client] for client in self.clients]

    def restore(self, description, states):
        clients = [int(client) for client in description]
        self._versions = dict(zip(clients, description.values(), strict=True))
        self._states = dict(zip(clients, states, strict=True))


def to_numpy(tree: Any) -> Any:
    """The same structure with NumPy arrays as leaves."""
    return tf.nest.map_structure(np.asarray, tree)
