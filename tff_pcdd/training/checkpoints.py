"""Checkpoints of a run: the server's state, the clients' states and totals such as bytes sent."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tff_pcdd import files
from tff_pcdd.errors import SettingError
from tff_pcdd.training import trees
from tff_pcdd.training.client_store import ClientStateStore

_NAME = re.compile(r"round_(\d{6})\.npz")


@dataclasses.dataclass(frozen=True)
class Checkpoint:
    """What is needed to continue after a round, beside the clients' states.

    Attributes:
        round: number of the round; 1 is the first.
        server_state: the server's state after this round.
        totals: counts since the first round, such as bytes sent.
    """

    round: int
    server_state: Any
    totals: Mapping[str, int] = dataclasses.field(default_factory=dict)


class CheckpointManager:
    """Writes checkpoints `round_NNNNNN.npz` atomically and keeps the newest.

    Args:
        directory: the directory of the checkpoints; created when the first one is saved.
        keep: how many of the newest checkpoints are kept.
    """

    def __init__(self, directory: Path, keep: int):
        self._directory = directory
        self._keep = keep

    def rounds(self) -> list[int]:
        """The rounds that have a checkpoint, in ascending order."""
        if not self._directory.is_dir():
            return []
        matches = (_NAME.fullmatch(path.name) for path in self._directory.iterdir())
        return sorted(int(match[1]) for match in matches if match)

    def _path(self, round_number: int) -> Path:
        return self._directory / f"round_{round_number:06d}.npz"

    def _manifest(self, round_number: int) -> Path:
        return self._directory / f"round_{round_number:06d}.json"

    def save(self, checkpoint: Checkpoint, store: ClientStateStore) -> None:
        """Saves the state after a round, and deletes all but the newest `keep` checkpoints."""
        files.make_directory(self._directory)
        versions, states = store.snapshot()
        manifest = {
            "round": checkpoint.round,
            "clients": versions,
            "inline": store.inline,
            "totals": checkpoint.totals,
        }
        # The manifest is written first, because a checkpoint counts as soon as its arrays exist.
        files.write_text(self._manifest(checkpoint.round), json.dumps(manifest))
        trees.save_tree(self._path(checkpoint.round), [checkpoint.server_state, states])
        kept = self.rounds()[-self._keep :]
        for old in self.rounds():
            if old not in kept:
                files.remove(self._path(old))
                files.remove(self._manifest(old))
        store.forget_before(kept[0])

    def load(
        self,
        template: Any,
        client_template: Any,
        store: ClientStateStore,
        round_number: int | None = None,
    ) -> Checkpoint:
        """Loads a checkpoint, by default the newest, and restores the client states.

        Args:
            template: a server state of the same structure.
            client_template: a client state of the same structure.
            store: receives the client states.
            round_number: the round of the checkpoint; None for the newest.

        Raises:
            FileNotFoundError: there is no checkpoint, or none of that round.
            SettingError: the run keeps its client states in the other kind of store.
            ValueError: the checkpoint belongs to another model or method.
        """
        rounds = self.rounds()
        if not rounds or (round_number is not None and round_number not in rounds):
            raise FileNotFoundError(
                f"no checkpoint of round {round_number} in {self._directory}; there are {rounds}"
                if rounds
                else f"no checkpoint in {self._directory}"
            )
        chosen = rounds[-1] if round_number is None else round_number
        manifest = json.loads(self._manifest(chosen).read_text())
        versions = manifest["clients"]
        if manifest["inline"] != store.inline:
            given, kept = ("memory", "disk") if store.inline else ("disk", "memory")
            raise SettingError(
                "client_store", given, f"the run keeps its client states in the other store, {kept}"
            )
        in_file = [client_template] * len(versions) if store.inline else []
        server_state, states = trees.load_tree(self._path(chosen), [template, in_file])
        store.restore(versions, states)
        return Checkpoint(chosen, server_state, manifest["totals"])
