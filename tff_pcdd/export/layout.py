"""The directory of an export, in the layout that TensorFlow Serving expects.

models.config                 lists every model, with its path in the container
sites.json                    the clients whose models have another name than their id
global/<version>/             a SavedModel
personal/<slug>/<version>/    the slug of a client is its id, or a form of it that URLs may contain
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tff_pcdd import directories, files
from tff_pcdd.errors import SettingError, WriteError, one_of, shown
from tff_pcdd.export.slugs import slugs

MODELS_CONFIG = "models.config"
SITES = "sites.json"
GLOBAL, _PERSONAL = "global", "personal"

# Which export is not finished.
_UNFINISHED = ".unfinished.json"
# Versions that are being written, and that are being replaced.
_NEW, _OLD = "new", "old"

# The setting that names the directory.
_SETTING = "export_dir"

# Mount point of the directory in TensorFlow Serving's container.
SERVING_ROOT = "/models"


def personal_folders(client_ids: Sequence[str]) -> list[str]:
    """The folder of each client's models.

    Args:
        client_ids: the ids of all clients, also of those that are not exported: their number
            decides which of two similar names gets a number.
    """
    return [f"{_PERSONAL}/{slug}" for slug in slugs(client_ids)]


def model_name(folder: str) -> str:
    """The name of the model in a folder, as used in the server's URLs."""
    return folder.replace("/", "-")


class ExportDirectory:
    """Writes versions of models atomically, and continues an export that was interrupted.

    Args:
        root: the directory; created when the first model is written.
        version: version number of the models that are written.
        overwrite: whether to replace existing models of this version.

    Raises:
        SettingError: the directory cannot be used for an export.
    """

    def __init__(self, root: str | os.PathLike, version: int, overwrite: bool = False):
        self._root = Path(root)
        self._version = str(version)
        self._overwrite = overwrite
        self._settings: Mapping[str, Any] | None = None
        # The folders of this export's complete models, with the accuracies.
        self.written: dict[str, float] = {}
        known = (MODELS_CONFIG, SITES, GLOBAL, _PERSONAL, _UNFINISHED)
        if not _is_utf_8(self._root):
            reason = "is no name in UTF-8, to which TensorFlow could write; choose another one"
            raise SettingError(_SETTING, str(root), reason)
        directories.check_output(self._root, "export", known, _SETTING)
        directories.refuse_links(self._root, known, _SETTING)

    def check(self, folders: Iterable[str], settings: Mapping[str, Any] | None = None) -> None:
        """Checks that no version would be replaced, unless `overwrite` is true.

        First, repairs what a killed process may have left: a version that it had moved out of the
        way is put back, and half-written ones are deleted.

        Args:
            folders: the folders of the models that will be written.
            settings: what the models depend on. The versions that an interrupted export with the
                same settings has written are kept, and are in `written`.

        Raises:
            SettingError: one of the folders already contains this version, or another process is
                writing to the directory.
            WriteError: the directory cannot be repaired.
        """
        if not self._root.exists():
            return
        with directories.locked(self._root, _SETTING, lock_file=False):
            unfinished = _read(self._root / _UNFINISHED)
            if settings is not None and unfinished.get("settings") == settings:
                with contextlib.suppress(KeyError, TypeError, ValueError):  # If it was changed.
                    self.written = self._read_written(unfinished)
            self._repair()
        taken = [f for f in folders if self._target(f).exists() and f not in self.written]
        if taken and not self._overwrite:
            raise SettingError(
                _SETTING,
                str(self._root),
                f"already contains {taken[0]}/{self._version}; choose another model_version or set "
                "`overwrite`",
            )

    @property
    def is_unfinished(self) -> bool:
        """Whether an export into the directory was interrupted."""
        return (self._root / _UNFINISHED).exists()

    @contextlib.contextmanager
    def writing(
        self, settings: Mapping[str, Any], clients: Mapping[str, str] | None = None
    ) -> Iterator[None]:
        """Locks the directory, and marks the export as unfinished until the block succeeds.

        Args:
            settings: as in `check`.
            clients: the id of the client of each folder of personal models.

        Raises:
            SettingError: another process is writing to the directory.
            WriteError: the directory cannot be written.
        """
        with directories.locked(self._root, _SETTING, lock_file=False):
            self._settings = settings
            self._note()
            yield
            self.write_models_config(clients)
            files.remove(self._root / _UNFINISHED)

    @contextlib.contextmanager
    def version(self, folder: str, accuracy: float = math.nan) -> Iterator[Path]:
        """Yields a temporary directory, which becomes the version if the block succeeds.

        Args:
            folder: the folder of the model.
            accuracy: its accuracy in percent, for `written` if the export is interrupted.

        Raises:
            WriteError: the version cannot be written; an existing one is unchanged.
        """
        target = self._target(folder)
        # Servers treat folders whose names are numbers as versions, and ignore hidden ones.
        filling, old = self._filling(folder), target.with_name(f".{self._version}.{_OLD}.tmp")
        files.remove(filling)
        files.make_directory(filling)
        try:
            yield filling
            _sync(filling)
            self._note(folder, accuracy)
            if target.exists():
                files.rename(target, old)
            try:
                files.rename(filling, target)
            except WriteError:
                # If this fails too, the next export does it.
                with contextlib.suppress(WriteError):
                    if old.exists() and not target.exists():
                        files.rename(old, target)
                raise
            files.remove(old)
            self.written[folder] = accuracy
        finally:
            with contextlib.suppress(WriteError):
                files.remove(filling)

    def _target(self, folder: str) -> Path:
        return self._root / folder / self._version

    def _filling(self, folder: str) -> Path:
        return self._target(folder).with_name(f".{self._version}.{_NEW}.tmp")

    def _note(self, folder: str = "", accuracy: float = math.nan) -> None:
        """Notes what has been written, and which version will be complete once it is renamed."""
        if self._settings is None:
            return
        values: dict[str, Any] = {"settings": self._settings, "written": self.written}
        if folder:
            # By its time of change, a version tells whether it is this one or an earlier one.
            time = self._filling(folder).stat().st_mtime_ns
            values["renamed"] = {"folder": folder, "accuracy": accuracy, "time": time}
        files.write_text(self._root / _UNFINISHED, json.dumps(values))

    def _read_written(self, unfinished: Mapping[str, Any]) -> dict[str, float]:
        """What an interrupted export has written, from its notes."""
        written = dict(unfinished["written"])
        if renamed := unfinished.get("renamed"):
            target = self._target(renamed["folder"])
            if target.exists() and target.stat().st_mtime_ns == renamed["time"]:
                written[renamed["folder"]] = renamed["accuracy"]
        return {folder: value for folder, value in written.items() if self._target(folder).exists()}

    def _repair(self) -> None:
        """Puts back versions that were being replaced, and deletes temporary files."""
        for pattern in (".*.tmp", f"{GLOBAL}/.*.tmp", f"{_PERSONAL}/*/.*.tmp"):
            for path in [*self._root.glob(pattern)]:
                old = re.fullmatch(rf"\.(\d+)\.{_OLD}\.tmp", path.name)
                if old and not path.with_name(old[1]).exists():
                    files.rename(path, path.with_name(old[1]))
                else:
                    files.remove(path)

    def write_models_config(self, clients: Mapping[str, str] | None = None) -> None:
        """Writes the list of all SavedModels in the directory, including earlier exports.

        `clients` are the ids of the clients by the folder of their models.
        """
        found = {path.parent.parent for path in self._root.glob("**/[0-9]*/saved_model.pb")}
        folders = sorted(path.relative_to(self._root).as_posix() for path in found)
        sites = self._root / SITES
        names = _read(sites)
        for folder, client_id in (clients or {}).items():
            # Also if an earlier export had another client there.
            names.pop(model_name(folder), None)
            if folder != f"{_PERSONAL}/{client_id}":
                names[model_name(folder)] = client_id
        there = set(map(model_name, folders))
        kept = {name: client_id for name, client_id in sorted(names.items()) if name in there}
        if kept or sites.exists():
            files.write_text(sites, json.dumps(kept, indent=2, ensure_ascii=False) + "\n")
        files.write_text(self._root / MODELS_CONFIG, _models_config(folders, kept))


def find(root: str | os.PathLike, name: str, version: int | None = None) -> Path:
    """The directory of a SavedModel of an export.

    Args:
        root: the directory of the export.
        name: the name of the model, as in models.config, or the id of its client, also in short.
        version: the version of the model; by default the newest.

    Raises:
        SettingError: there is no such export, model or version.
    """
    folders: dict[str, list[int]] = {}
    # Not in all folders below: a directory that was named by mistake may hold a whole disk.
    for pattern in (f"{GLOBAL}/*/saved_model.pb", f"{_PERSONAL}/*/*/saved_model.pb"):
        for path in sorted(Path(root).glob(pattern)):
            if path.parent.name.isdecimal():
                folder = path.parent.parent.relative_to(root).as_posix()
                folders.setdefault(folder, []).append(int(path.parent.name))
    if not folders:
        reason = "holds no SavedModels; tasks.export writes them (format=saved_model)"
        raise SettingError(_SETTING, str(root), reason)
    sites = _read(Path(root) / SITES)
    clients = {
        str(sites.get(model_name(folder), folder.removeprefix(f"{_PERSONAL}/"))): folder
        for folder in folders
    }
    known = {folder.removeprefix(f"{_PERSONAL}/"): folder for folder in folders}
    known |= {model_name(folder): folder for folder in folders} | clients
    if GLOBAL in folders:
        known[GLOBAL] = GLOBAL
    if name not in known:
        raise SettingError("model_name", name, one_of(name, clients))
    folder = known[name]
    versions = folders[folder]
    version = max(versions) if version is None else version
    if version not in versions:
        reason = f"choose one of {', '.join(map(str, sorted(versions)))}"
        raise SettingError("model_version", version, f"{folder} has no such version; {reason}")
    return Path(root, folder, str(version))


def _read(path: Path) -> dict[str, Any]:
    """A JSON object that an export has written; empty if there is none of use."""
    try:
        values = json.loads(files.read_bytes(path))
    except (OSError, ValueError, RecursionError):
        return {}
    return values if isinstance(values, dict) else {}


def _sync(directory: Path) -> None:
    """Waits until all files below a directory are on the disk, such as those of a library."""
    with files.writing(directory):
        for folder, _, names in os.walk(directory):
            for name in names:
                with open(os.path.join(folder, name), "rb") as file:
                    os.fsync(file.fileno())
            files.sync_directory(Path(folder))


def _models_config(folders: list[str], clients: Mapping[str, str]) -> str:
    """A `ModelServerConfig` of TensorFlow Serving, in protobuf's text format.

    Comments name the clients whose ids differ from the names of their models.
    """
    entries = []
    for folder in folders:
        name = model_name(folder)
        comment = f"  # client {shown(clients[name])}\n" if name in clients else ""
        entries.append(
            f'{comment}  config {{\n    name: "{name}"\n    base_path: "{SERVING_ROOT}/{folder}"\n'
            '    model_platform: "tensorflow"\n  }\n'
        )
    return f"model_config_list {{\n{''.join(entries)}}}\n"


def _is_utf_8(path: Path) -> bool:
    """Whether TensorFlow, which writes names in UTF-8, writes to the same place as Python."""
    try:
        return os.fsencode(path).decode() == os.fspath(path)
    except UnicodeError:
        return False
