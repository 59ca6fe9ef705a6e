"""Warm starts: a run that starts from the last weights of another run.

The other run may have had another method, and its directory may come from anyone: only arrays and
JSON are read from it, and no code of its method is needed.
"""

from __future__ import annotations

import dataclasses
import logging
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from tff_pcdd.errors import DamagedFileError, DataError, SettingError
from tff_pcdd.experiment.config import ExperimentConfig
from tff_pcdd.federated.records import ClientState
from tff_pcdd.training import manifests, run_directory
from tff_pcdd.training.file_names import CHECKPOINTS, CLIENT_STATES
from tff_pcdd.training.manifests import Manifest

if TYPE_CHECKING:
    from tff_pcdd.experiment.initial_weights import InitialWeights
    from tff_pcdd.experiment.simulation import Simulation
    from tff_pcdd.training.disk_store import DiskStore

_logger = logging.getLogger(__name__)

_SETTING = "warm_start"

# The arrays of a checkpoint, or of a client's file, from which a run can start; `arr_0` is the
# first one of earlier versions, which had no names.
_SERVER = re.compile(r"server/weights/(\w+)/\d{1,6}")
_CLIENT = re.compile(r"(clients/\d{1,9}/)?(personal/\d{1,6}|participations)")
# Runs with a head calibration say whether they have trained the weights.
_TRAINED = "server/server/trained"
_WANTED = re.compile(f"{_SERVER.pattern}|{_CLIENT.pattern}|{_TRAINED}|arr_0")


def check(runs: Iterable[tuple[ExperimentConfig, Path]], *, overwrite: bool) -> None:
    """Checks that runs can read the weights from which they start, without TensorFlow.

    A run that has a checkpoint of its own or has finished does not need them any more.

    Raises:
        SettingError: a directory holds no run, no intact checkpoint, or is that of the run itself.
    """
    found = set()
    for config, directory in runs:
        run_dir = config.training.warm_start
        if run_dir is None or not (overwrite or run_directory.starts_afresh(directory)):
            continue
        if run_dir not in found:
            _find(run_dir)
            found.add(run_dir)
        if _path(run_dir).resolve() == directory.resolve():
            raise SettingError(_SETTING, run_dir, "is the directory of this run; name another one")


def start(simulation: Simulation, run_dir: str, data: str) -> str:
    """Lets a simulation start with the last weights of a run.

    Args:
        simulation: before its first round.
        run_dir: the directory of the run.
        data: the digest of the simulation's data. What clients keep is used only if the run had the
            same clients with the same samples.

    Returns:
        The checksum of the arrays in the checkpoint that the weights are from.

    Raises:
        SettingError: the directory cannot be used, or the weights do not fit the network.
        DataError: a file is damaged.
    """
    manifest = _find(run_dir)
    try:
        initial = _read(run_dir, manifest)
    except DataError:
        raise
    except (AttributeError, TypeError, ValueError, RecursionError) as error:
        reason = f"the checkpoint of round {manifest.round} is damaged ({error})"
        raise SettingError(_SETTING, run_dir, reason) from None
    with simulation.spec.outline() as net:
        keeps = bool(net.kept)
    if keeps and initial.clients and manifest.run.get("data") != data:
        _logger.warning(
            "%s=%s: what its clients keep is not used, because the clients or their samples differ",
            _SETTING,
            run_dir,
        )
        initial = dataclasses.replace(initial, clients={})
    simulation.start_with(initial)
    return manifest.arrays


def _path(run_dir: str) -> Path:
    return Path(os.path.expanduser(run_dir))


def _find(run_dir: str) -> Manifest:
    """The newest intact checkpoint of a run; warns of damaged newer ones."""
    try:
        return _newest_intact(run_dir)
    except OSError as error:
        raise SettingError(_SETTING, run_dir, f"cannot be read: {error.strerror}") from None


def _newest_intact(run_dir: str) -> Manifest:
    directory = _path(run_dir)
    settings = manifests.settings_digest(run_directory.read_settings(directory, _SETTING))
    folder = directory / CHECKPOINTS
    damage: list[str] = []
    for number in reversed(manifests.rounds(folder)):
        try:
            manifest = manifests.read(folder, number)
            if manifest.run.get("settings") != settings:
                raise DataError(f"{folder} has a checkpoint of another run, of round {number}")
            manifests.check_file(manifests.arrays_path(folder, number), manifest.arrays)
        except (DataError, AttributeError, TypeError) as error:
            damage.append(str(error))
            continue
        for problem in damage:
            _logger.warning("%s; using the checkpoint of round %d", problem, number)
        return manifest
    reason = f"has no intact checkpoint: {damage[0]}" if damage else "has no checkpoint"
    raise SettingError(_SETTING, run_dir, reason)


def _read(run_dir: str, manifest: Manifest) -> InitialWeights:
    """The weights in a checkpoint, with the states of clients that keep variables."""
    from tff_pcdd.experiment.initial_weights import InitialWeights, with_variables
    from tff_pcdd.training.disk_store import DiskStore

    directory = _path(run_dir)
    path = manifests.arrays_path(directory / CHECKPOINTS, manifest.round)
    arrays = _load(path, manifest.arrays)
    groups = sorted({match[1] for name in arrays if (match := _SERVER.fullmatch(name))})
    weights = {group: _listed(arrays, f"server/weights/{group}") for group in groups}
    clients: Mapping[int, ClientState]
    if manifest.inline:
        places = {int(client): f"clients/{client}/" for client in manifest.clients}
        clients = {client: _client(arrays, place, path) for client, place in places.items()}
    else:
        store = DiskStore(lambda client: None, directory / CLIENT_STATES)
        store.restore(manifest.clients, [])
        clients = _OnDisk(store)
    trained = bool(arrays[_TRAINED].item()) if _TRAINED in arrays else True
    return InitialWeights(weights, with_variables(clients), run_dir, trained)


def _load(path: Path, checksum: str) -> dict[str, np.ndarray]:
    """The arrays of a file from which a run can start."""
    from tff_pcdd.training import checkpoints

    arrays = checkpoints.load_arrays(path, checksum, _WANTED.fullmatch)
    if "arr_0" in arrays:
        reason = "was written by an earlier version, whose arrays have no names; no run can start"
        raise DataError(f"{path} {reason} from it until that run has been continued or repeated")
    return arrays


class _OnDisk(Mapping[int, ClientState]):
    """What clients keep in files, each of which is read when it is needed."""

    def __init__(self, store: DiskStore):
        self._store = store

    def __getitem__(self, client: int) -> ClientState:
        path, checksum = self._store.file_of(client)
        return _client(_load(path, checksum), "", path)

    def __iter__(self) -> Iterator[int]:
        return iter(self._store.clients)

    def __len__(self) -> int:
        return len(self._store.clients)


def _client(arrays: Mapping[str, np.ndarray], place: str, path: Path) -> ClientState:
    """What is used of a client's state."""
    try:
        participations = np.int32(arrays[f"{place}participations"].item())
    except (KeyError, ValueError, TypeError, OverflowError) as error:
        raise DamagedFileError(f"{path} is damaged ({error})") from None
    personal = _listed(arrays, f"{place}personal")
    return ClientState(own={}, participations=participations, personal=personal)


def _listed(arrays: Mapping[str, np.ndarray], place: str) -> list[np.ndarray]:
    """The arrays PLACE/0, PLACE/1, …"""
    found: list[np.ndarray] = []
    while (name := f"{place}/{len(found)}") in arrays:
        found.append(arrays[name])
    return found
