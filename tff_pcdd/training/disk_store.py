"""The states that clients keep between rounds, on disk.

    client_states/round_000012/client_000345.npz    the state of client 345 after round 12
    client_states/round_000012/states.json          checksums of the states of this round, by client

A checkpoint names the rounds that it needs, with the checksum of each list. So what a round and its
checkpoint write and delete depends on the size of the cohort, not on the number of clients.
"""

from __future__ import annotations

import collections
import contextlib
import json
import operator
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tff_pcdd import files
from tff_pcdd.errors import DamagedFileError
from tff_pcdd.experiment.client_store import ClientStateStore
from tff_pcdd.training import checkpoints, manifests

_ROUND = re.compile(r"round_(\d{6,})")
_CLIENT = re.compile(r"client_(\d{6,})\.npz")
_LIST = "states.json"


class DiskStore(ClientStateStore):
    """Keeps each state in a file; a checkpoint contains only checksums of lists of these files.

    Memory grows by some hundred bytes with each client that takes part. No file that a checkpoint
    needs is overwritten, so a run that is killed in the middle of a round still has the states of
    its last checkpoint. A file is compared with its checksum whenever it is read.
    """

    inline = False

    def __init__(self, initial: Callable[[int], Any], directory: Path):
        super().__init__(initial)
        self._directory = directory
        self._template: Any = None
        # The round of each client's newest state, and the checksum of its file.
        self._newest: dict[int, int] = {}
        self._checksums: dict[int, str] = {}
        # Checksums of written lists; entries of those that have to be written.
        self._lists: dict[int, str] = {}
        self._unlisted: dict[int, dict[str, str]] = {}
        # States that are not the newest: the round of the next state, the client, and the round.
        self._superseded: collections.deque[tuple[int, int, int]] = collections.deque()
        self._unsynced: list[Path] = []

    def _folder(self, version: int) -> Path:
        return self._directory / f"round_{version:06d}"

    def _path(self, client: int, version: int) -> Path:
        return self._folder(version) / f"client_{client:06d}.npz"

    @property
    def clients(self):
        return sorted(self._newest)

    def get(self, client):
        if client not in self._newest:
            return self._initial(client)
        if self._template is None:
            self._template = self._initial(client)
        path, checksum = self.file_of(client)
        return checkpoints.load_tree(path, self._template, checksum)

    def file_of(self, client: int) -> tuple[Path, str]:
        """The file with the newest state of a client, and its checksum."""
        return self._path(client, self._newest[client]), self._checksums[client]

    def put(self, client, state, version):
        path = self._path(client, version)
        files.make_directory(path.parent)
        # Waiting for each file separately would take longer than writing the states.
        checksum = checkpoints.save_tree(path, state, sync=False)
        self._unsynced.append(path)
        if version not in self._unlisted:
            listed = version in self._lists
            self._unlisted[version] = self._read_list(version) if listed else {}
        self._unlisted[version][str(client)] = self._checksums[client] = checksum
        earlier = self._newest.get(client)
        if earlier == version:
            return
        if earlier is not None:
            self._superseded.append((version, client, earlier))
        self._newest[client] = version

    def snapshot(self):
        """The checksum of the list of each round that has a client's newest state.

        Writes the lists that are missing.
        """
        for version, entries in self._unlisted.items():
            path, text = self._folder(version) / _LIST, json.dumps(entries).encode()
            write = operator.methodcaller("write", text)
            self._lists[version] = files.write_atomically(
                path, write, sync_contents=False, sync_name=False
            )
            self._unsynced.append(path)
        self._unlisted.clear()
        files.sync_files(self._unsynced)
        for folder in {path.parent for path in self._unsynced}:
            with files.writing(folder):
                files.sync_directory(folder)
        self._unsynced.clear()
        versions = sorted({*self._newest.values()})
        return {str(version): self._lists[version] for version in versions}, []

    def restore(self, description, states):
        lists = {int(version): checksum for version, checksum in description.items()}
        newest: dict[int, int] = {}
        checksums: dict[int, str] = {}
        # The last round that lists a client has its newest state.
        for version in sorted(lists):
            for name, checksum in self._read_list(version, lists[version]).items():
                newest[int(name)], checksums[int(name)] = version, checksum
        for client, version in newest.items():
            manifests.check_file(self._path(client, version), checksums[client])
        self._newest, self._checksums, self._lists = newest, checksums, lists
        self._unlisted, self._unsynced = {}, []
        self._find_superseded()

    def _read_list(self, version: int, checksum: str | None = None) -> dict[str, str]:
        """The checksums of a round's states, by client."""
        path = self._folder(version) / _LIST
        manifests.check_file(path, self._lists[version] if checksum is None else checksum)
        try:
            entries = json.loads(files.read_bytes(path))
            wrong = manifests.not_of(entries, {str})
        except (OSError, ValueError, RecursionError) as error:
            wrong = str(error)
        if wrong or not all(name.isdecimal() and len(name) < 10 for name in entries):
            raise DamagedFileError(f"{path} is damaged ({wrong or 'a name is no number'})")
        return entries

    def _find_superseded(self) -> None:
        """Finds the files that older checkpoints need; newer ones belong to other checkpoints."""
        following = dict(self._newest)
        found = []
        for version in sorted(self._rounds(), reverse=True):
            for client in self._clients(version):
                if version < following.get(client, 0):
                    found.append((following[client], client, version))
                    following[client] = version
        self._superseded = collections.deque(sorted(found))

    def forget_before(self, version, kept=None):
        emptied, spared = set(), []
        while self._superseded and self._superseded[0][0] <= version:
            following, client, earlier = self._superseded.popleft()
            if kept is not None and earlier <= kept < following:
                spared.append((following, client, earlier))
                continue
            files.remove(self._path(client, earlier))
            emptied.add(earlier)
        self._superseded.extendleft(reversed(spared))
        for earlier in emptied:
            # No checkpoint names a round without a newest state.
            if not self._has_states(earlier):
                self._lists.pop(earlier, None)
                self._remove_folder(earlier)

    def forget_after(self, version):
        for number in self._rounds():
            for client in self._clients(number) if number > version else ():
                files.remove(self._path(client, number))
            # Of an earlier round, a process that was killed may have removed the states only.
            if not self._has_states(number):
                self._remove_folder(number)

    def _remove_folder(self, version: int) -> None:
        """Removes a round's folder without states; it stays if anything in it is not ours."""
        listed = self._folder(version) / _LIST
        if not listed.is_dir():
            files.remove(listed)
        with contextlib.suppress(OSError):
            os.rmdir(self._folder(version))

    def _rounds(self) -> list[int]:
        """The rounds that have a folder."""
        return _numbers(self._directory, _ROUND, os.DirEntry.is_dir)

    def _has_states(self, version: int) -> bool:
        """Whether a round has a file of a state; reads few names of those that are there."""
        with contextlib.suppress(FileNotFoundError), os.scandir(self._folder(version)) as entries:
            return any(_CLIENT.fullmatch(entry.name) for entry in entries)
        return False

    def _clients(self, version: int) -> list[int]:
        """The clients of whose states a round has files."""
        return _numbers(self._folder(version), _CLIENT, os.DirEntry.is_file)


def _numbers(
    folder: Path, names: re.Pattern[str], fits: Callable[[os.DirEntry], bool]
) -> list[int]:
    """The numbers in the names of the entries of a folder that are of the given kind."""
    try:
        with os.scandir(folder) as entries:
            found = [(names.fullmatch(entry.name), entry) for entry in entries]
            return [int(match[1]) for match, entry in found if match and fits(entry)]
    except FileNotFoundError:
        return []
