"""Checkpoints of a run: the server's state, the clients' states, totals and measurements."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import tree as nested
from etils import epy

from tff_pcdd import files
from tff_pcdd.errors import DamagedFileError, DataError, SettingError
from tff_pcdd.experiment.client_store import ClientStateStore
from tff_pcdd.training import manifests
from tff_pcdd.training.manifests import Manifest

with epy.lazy_imports():
    import tensorflow as tf

_logger = logging.getLogger(__name__)


# What the digests of a run stand for, for errors.
_IDENTITY = {
    "settings": "belongs to a run with other settings",
    "data": "was written with other data (samples, or their division among clients)",
    "meaning": "was written with inputs of another type, shape or scale, or other class names",
}

# What to do if they differ, where a run is continued and where it is evaluated or exported.
_OTHER_SETTINGS = "restore the files of this run, or overwrite the run"
_TRAIN = "name another output_dir, replace the run with `overwrite`, or bring the earlier data back"
_READ = (
    "bring the earlier data back, or train the run again; exported models answer for new samples "
    "(tasks.predict)"
)


@dataclasses.dataclass(frozen=True)
class Checkpoint:
    """What is needed to continue after a round, beside the clients' states.

    Attributes:
        round: number of the round; 1 is the first.
        server_state: the server's state after this round.
        totals: counts since the first round, such as bytes sent.
        metrics: the measurements since the first round, as in metrics.csv.
    """

    round: int
    server_state: Any
    totals: Mapping[str, int] = dataclasses.field(default_factory=dict)
    metrics: str = ""


class _Arrays(NamedTuple):
    """What the npz file of a checkpoint contains; no clients if the store keeps them elsewhere."""

    server: Any
    clients: Mapping[int, Any]


class CheckpointManager:
    """Writes checkpoints `round_NNNNNN.npz` with a manifest `.json`; keeps the newest and the best.

    A checkpoint counts as soon as it has a manifest, which is written last. It is on the disk
    before `save` returns and before an older one is deleted.

    Args:
        directory: the directory of the checkpoints; created when the first one is saved.
        keep: how many of the newest checkpoints are kept.
        run: digests that identify the run, as in the manifests. Checkpoints with other `settings`,
            `data` or `meaning` of the data are refused. Its other entries are replaced by those of
            a checkpoint that is loaded, but for `files`.
        place: tells which data differ from those of a manifest, for errors.
    """

    def __init__(
        self,
        directory: Path,
        keep: int,
        run: Mapping[str, str] | None = None,
        place: Callable[[Manifest], str] = lambda manifest: "",
    ):
        self._directory = directory
        self._keep = keep
        self._run = dict(run or {})
        self._place = place
        # Of the checkpoint that was saved or loaded last.
        self.newest: Manifest | None = None

    def identify(self, **digests: str) -> None:
        """Adds digests that identify the run."""
        self._run |= digests

    def rounds(self) -> list[int]:
        """The rounds that have a checkpoint, in ascending order."""
        return manifests.rounds(self._directory, ["json"])

    def _arrays(self, round_number: int) -> Path:
        return manifests.arrays_path(self._directory, round_number)

    def save(
        self, checkpoint: Checkpoint, store: ClientStateStore, best: int | None = None
    ) -> None:
        """Saves the state after a round; deletes all but the newest `keep` of them and `best`."""
        files.make_directory(self._directory)
        clients, states = store.snapshot()
        numbers = map(int, clients) if store.inline else ()
        arrays = _Arrays(checkpoint.server_state, dict(zip(numbers, states, strict=True)))
        checksum = save_tree(self._arrays(checkpoint.round), arrays)
        if not self.rounds():
            # After a power cut, no earlier checkpoint could replace a manifest without its arrays.
            files.sync_directory(self._directory)
        self.newest = Manifest(
            round=checkpoint.round,
            run=self._run,
            arrays=checksum,
            inline=store.inline,
            clients=clients,
            totals=dict(checkpoint.totals),
            metrics=checkpoint.metrics,
        )
        # This synchronizes the directory, with the names of both files.
        manifests.write(self._directory, self.newest)
        oldest = self.rounds()[-self._keep :][0]
        for number in manifests.rounds(self._directory):
            if number < oldest and number != best:
                self._delete(number)
        store.forget_before(oldest, best)

    def record_results(self, summary: str, answers: Mapping[str, str]) -> None:
        """Adds to the newest checkpoint what damage of the results is noticed by.

        Args:
            summary: the text of summary.json, which is restored from it.
            answers: checksums of the files of the models' answers, by name.
        """
        if self.newest is None:
            return
        manifest = dataclasses.replace(self.newest, summary=summary, answers=dict(answers))
        if manifest != self.newest:
            self.newest = manifest
            manifests.write(self._directory, manifest)

    def forget_after(self, round_number: int) -> None:
        """Deletes checkpoints of later rounds, which are unusable and will be computed again."""
        for number in manifests.rounds(self._directory):
            if number > round_number:
                self._delete(number)

    def _delete(self, round_number: int) -> None:
        manifest = manifests.manifest_path(self._directory, round_number)
        for path in (manifest, self._arrays(round_number)):
            # A directory is not ours.
            if not path.is_dir():
                files.remove(path)

    def check(self, store: ClientStateStore) -> Manifest | None:
        """The manifest of the newest intact checkpoint, which has to be of this run; or None.

        Raises:
            SettingError: the run keeps its client states in the other kind of store.
            DataError: the checkpoint belongs to another run, or was written with other data.
        """
        for number in reversed(self.rounds()):
            with contextlib.suppress(DamagedFileError):
                manifest = manifests.read(self._directory, number)
                self._check(manifest, store, trains=True)
                return manifest
        return None

    def is_intact(self, round_number: int) -> bool:
        """Whether the files of a checkpoint are those that were saved."""
        try:
            manifests.read_intact(self._directory, round_number)
        except DataError:
            return False
        return True

    def load(
        self,
        template: Any,
        client_template: Any,
        store: ClientStateStore,
        round_number: int | None = None,
        *,
        unfinished: bool = False,
        trains: bool = False,
    ) -> Checkpoint:
        """Loads a checkpoint and restores the client states.

        Args:
            template: a server state of the same structure.
            client_template: a client state of the same structure.
            store: receives the client states.
            round_number: the round of the checkpoint; None for the newest that is not damaged. If
                that is not the newest of all, a warning says so.
            unfinished: whether the process that trains may have ended while it saved a checkpoint.
                Then arrays alone that are newer than all manifests are no damage.
            trains: whether the run is continued, for what errors advise.

        Raises:
            FileNotFoundError: there is no checkpoint, or none of that round.
            DamagedFileError: the checkpoint is damaged, or all of them are.
            SettingError: the run keeps its client states in the other kind of store.
            DataError: the checkpoint belongs to another run, or was written with other data.
        """
        rounds = self.rounds()
        if not rounds:
            raise FileNotFoundError(f"no checkpoint in {self._directory}")
        if round_number is not None:
            if round_number not in rounds:
                hint = "a larger `keep_checkpoints` or smaller `checkpoint_every` keeps more"
                raise FileNotFoundError(
                    f"no checkpoint of round {round_number} in {self._directory}; there are "
                    f"{rounds}" + (f"; {hint}" if round_number < rounds[-1] else "")
                )
            return self._load(round_number, template, client_template, store, trains)
        damage: list[str] = []
        # Arrays without a manifest may be what is left of a newer checkpoint.
        every = manifests.rounds(self._directory)
        if not (unfinished and every[-2:-1] == rounds[-1:]):
            rounds = every
        for number in reversed(rounds):
            try:
                checkpoint = self._load(number, template, client_template, store, trains)
            except DamagedFileError as error:
                damage.append(str(error))
                continue
            for problem in damage:
                _logger.warning("%s", problem)
            if damage:
                first, last = number + 1, rounds[-1]
                lost = f"round {last}" if first == last else f"rounds {first} to {last}"
                _logger.warning("using the checkpoint of round %d; lost: %s", number, lost)
            return checkpoint
        others = f"; the other {len(damage) - 1} cannot be used either" if damage[1:] else ""
        raise DamagedFileError(
            f"no checkpoint can be used: {damage[0]}{others}; restore the files, or overwrite the "
            "run to start again"
        )

    def _load(
        self,
        number: int,
        template: Any,
        client_template: Any,
        store: ClientStateStore,
        trains: bool,
    ) -> Checkpoint:
        manifest = manifests.read(self._directory, number)
        self._check(manifest, store, trains=trains)
        numbers = [int(client) for client in manifest.clients] if store.inline else []
        expected = _Arrays(template, dict.fromkeys(numbers, client_template))
        arrays = load_tree(self._arrays(number), expected, manifest.arrays)
        store.restore(manifest.clients, [arrays.clients[client] for client in numbers])
        # The same samples may be in other files now.
        present = {name: self._run[name] for name in ("files",) if name in self._run}
        self.newest, self._run = manifest, {**manifest.run, **present}
        return Checkpoint(number, arrays.server, manifest.totals, manifest.metrics)

    def _check(self, manifest: Manifest, store: ClientStateStore, *, trains: bool) -> None:
        """Checks that a checkpoint belongs to this run and its store."""
        for name, reason in _IDENTITY.items():
            expected = self._run.get(name)
            # Manifests of earlier versions have no "meaning".
            if manifest.run.get(name, expected if name == "meaning" else None) != expected:
                path = manifests.manifest_path(self._directory, manifest.round)
                if name == "settings":
                    raise DataError(f"{path} {reason}; {_OTHER_SETTINGS}")
                remedy = _TRAIN if trains else _READ
                raise DataError(f"{path} {reason}{self._place(manifest)}; {remedy}")
        if manifest.inline != store.inline:
            given, kept = ("memory", "disk") if store.inline else ("disk", "memory")
            raise SettingError(
                "client_store", given, f"the run keeps its client states in the other store, {kept}"
            )


# Nested structures of arrays on disk.


def save_tree(path: Path, tree: Any, *, sync: bool = True) -> str:
    """Saves the leaves of a nested structure as arrays of an npz file.

    The name of an array is the path to its leaf, such as `server/weights/trainable/0`.

    Args:
        path: the file. Its name is on the disk after `files.sync_directory`.
        tree: the structure.
        sync: whether the contents are on the disk then; otherwise after `files.sync_files`.

    Returns:
        The checksum of the file.
    """
    leaves: dict[str, Any] = _named_leaves(tree)
    return files.write_atomically(
        path, lambda file: np.savez(file, **leaves), sync_contents=sync, sync_name=False
    )


def _named_leaves(tree: Any) -> dict[str, np.ndarray]:
    """The leaves of a nested structure by their paths, in `tf.nest` order."""
    return {
        # A slash within a key would not differ from one between keys.
        "/".join(str(key).replace("~", "~0").replace("/", "~1") for key in path): np.asarray(leaf)
        for path, leaf in nested.flatten_with_path(tree)
    }


def load_tree(path: Path, template: Any, checksum: str) -> Any:
    """Loads what `save_tree` saved, in the structure of `template`.

    Files of earlier versions, whose arrays are numbered in `tf.nest` order, are loaded too.

    Raises:
        DamagedFileError: the file is missing or damaged.
        DataError: the shapes or types differ from those of the template, or the file cannot be
            read.
    """
    expected = _named_leaves(template)
    found = load_arrays(path, checksum)
    if found.keys() == {f"arr_{index}" for index in range(len(expected))}:
        found = {name: found[f"arr_{index}"] for index, name in enumerate(expected)}
    shapes, wanted = (
        {name: (array.shape, array.dtype) for name, array in arrays.items()}
        for arrays in (found, expected)
    )
    if shapes != wanted:
        raise DataError(f"{path} was written for another model or method")
    return tf.nest.pack_sequence_as(template, [found[name] for name in expected])


def load_arrays(
    path: Path, checksum: str, wanted: Callable[[str], Any] = lambda name: True
) -> dict[str, np.ndarray]:
    """Loads arrays that `save_tree` saved, by their names: those that are `wanted`.

    Raises:
        DamagedFileError: the file is missing or damaged, or larger when it is unpacked.
        DataError: the file cannot be read.
    """
    manifests.check_file(path, checksum)
    try:
        with np.load(path, allow_pickle=False) as file:
            if sum(entry.file_size for entry in file.zip.infolist()) > path.stat().st_size:
                raise ValueError("its arrays are larger than the file")
            return {name: np.asarray(file[name]) for name in file.files if wanted(name)}
    except (OSError, ValueError, KeyError, EOFError, MemoryError, zipfile.BadZipFile) as error:
        raise DamagedFileError(f"{path} is damaged ({error})") from error
