"""Manifests of checkpoints: what was saved after a round, with checksums of all of it.

The manifest of a checkpoint is written after the files that it describes. So a checkpoint that has
one is complete, and a file that does not match it is damaged. Nothing here needs TensorFlow.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from tff_pcdd import files
from tff_pcdd.data import sources
from tff_pcdd.errors import DamagedFileError, DataError, shown
from tff_pcdd.experiment.config import without_implied
from tff_pcdd.experiment.history import History
from tff_pcdd.training.file_names import CHECKPOINTS, CONFIG

# Entries of config.json that do not tell whether a checkpoint belongs to a run: the places of the
# data and of the run whose weights it started from, the number of rounds, to which some may be
# added, and the user's modules.
_MAY_CHANGE = ("data_dir", "warm_start", "rounds", "import")

# The largest manifest that is read. One of a million clients in memory has 20 MB.
_MOST = 256_000_000

# Files of checkpoints: the manifest and the arrays.
_NAME = re.compile(r"round_(\d{6,})\.(json|npz)")


@dataclasses.dataclass(frozen=True)
class Manifest:
    """What a checkpoint contains.

    Attributes:
        round: number of the round after which it was saved.
        run: digests that identify the run, `settings` and `data`; empty if it has none. If the run
            started from the weights of another one, also `warm_start`, the checksum of the arrays
            in the checkpoint that they are from.
        arrays: checksum of the file with the arrays.
        inline: whether that file contains the clients' states.
        clients: what `ClientStateStore.snapshot` says of the clients' states.
        totals: counts since the first round, such as bytes sent.
        metrics: metrics.csv up to this round.
        summary: summary.json, if this was the last round.
        answers: checksums of the files of the models' answers, by name, if this was the last round.
    """

    round: int
    run: Mapping[str, str]
    arrays: str
    inline: bool
    clients: Mapping[str, Any]
    totals: Mapping[str, int]
    metrics: str
    summary: str | None = None
    answers: Mapping[str, str] = dataclasses.field(default_factory=dict)


# The types that JSON has for the attributes; for objects, those of their values.
_TYPES: Mapping[str, tuple[type, ...]] = {
    "round": (int,),
    "arrays": (str,),
    "inline": (bool,),
    "metrics": (str,),
    "summary": (str, type(None)),
}
_TYPES_OF_VALUES: Mapping[str, tuple[type, ...]] = {
    "run": (str,),
    "clients": (int, str),
    "totals": (int,),
    "answers": (str,),
}


def manifest_path(directory: Path, round_number: int) -> Path:
    """The manifest of a round's checkpoint, in the directory of the checkpoints."""
    return directory / f"round_{round_number:06d}.json"


def arrays_path(directory: Path, round_number: int) -> Path:
    """The arrays of a round's checkpoint, in the directory of the checkpoints."""
    return manifest_path(directory, round_number).with_suffix(".npz")


def rounds(directory: Path, kinds: Collection[str] = ("json", "npz")) -> list[int]:
    """The rounds of which a checkpoint has one of these kinds of files, in ascending order."""
    if not directory.is_dir():
        return []
    matches = (_NAME.fullmatch(path.name) for path in directory.iterdir())
    return sorted({int(match[1]) for match in matches if match and match[2] in kinds})


def write(directory: Path, manifest: Manifest) -> None:
    """Writes the manifest of a checkpoint, with a checksum of its own."""
    content = json.dumps(dataclasses.asdict(manifest))
    text = f'{{"checksum": "{_checksum(content)}", "content": {content}}}\n'
    files.write_text(manifest_path(directory, manifest.round), text)


def read(directory: Path, round_number: int) -> Manifest:
    """Reads the manifest of a round's checkpoint.

    Raises:
        DamagedFileError: it is missing or damaged.
        DataError: it was written by another version, or cannot be read.
    """
    path = manifest_path(directory, round_number)
    check_is_file(path)
    try:
        whole = json.loads(files.read_bytes(path, _MOST))
    except PermissionError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}") from None
    except (OSError, ValueError, RecursionError) as error:
        raise DamagedFileError(f"{path} is damaged ({error})") from None
    if not isinstance(whole, dict) or not {"checksum", "content"} <= whole.keys():
        if isinstance(whole, dict) and {"round", "clients"} <= whole.keys():
            reason = "was written by an older version, whose runs cannot be continued"
            raise DataError(f"{path} {reason}; use that version, or overwrite the run")
        raise DamagedFileError(f"{path} is damaged (not a manifest)")
    try:
        checksum = _checksum(json.dumps(whole["content"]))
    except RecursionError:
        raise DamagedFileError(f"{path} is damaged (nested too deeply)") from None
    if whole["checksum"] != checksum:
        raise DamagedFileError(f"{path} is damaged (its checksum differs)")
    content = whole["content"]
    if not isinstance(content, dict):
        raise DamagedFileError(f"{path} is damaged (not a manifest)")
    if content.get("inline"):
        # Earlier versions listed checksums of clients' files here, of which such a run has none.
        content.pop("client_checksums", None)
    try:
        manifest = Manifest(**content)
    except TypeError:
        raise DataError(f"{path} was written by another version; use that version") from None
    try:
        problem = _problem(manifest)
    except RecursionError:
        problem = "nested too deeply"
    if problem:
        raise DamagedFileError(f"{path} is damaged ({problem})")
    if manifest.round != round_number:
        raise DamagedFileError(f"{path} is the manifest of round {manifest.round}")
    return manifest


def _problem(manifest: Manifest) -> str | None:
    """What no program has written into a manifest, whose checksum anyone can compute."""
    values = vars(manifest)
    for name, types in _TYPES.items():
        if type(values[name]) not in types:
            return f"{name} is {shown(values[name], 80)}"
    for name, types in _TYPES_OF_VALUES.items():
        if wrong := not_of(values[name], types):
            return f"{name} {wrong}"
    if not all(key.isdecimal() and len(key) < 10 for key in manifest.clients):
        return "clients has a key that is no number"
    try:
        History.parse(manifest.metrics)
        if not isinstance(json.loads(manifest.summary or "{}"), dict):
            return "summary is not that of a run"
    except (ValueError, RecursionError) as error:
        return shown(error, 80)
    return None


def not_of(value: Any, types: Collection[type]) -> str | None:
    """What is wrong with a value that is no JSON object with values of these types."""
    if not isinstance(value, dict):
        return f"is {shown(value, 80)}"
    wrong = [name for name, found in value.items() if type(found) not in types]
    return f"has {shown(value[wrong[0]], 80)} for {shown(wrong[0], 80)}" if wrong else None


def check_is_file(path: Path) -> None:
    """Checks that a file of a checkpoint is there.

    Raises:
        DamagedFileError: it is missing.
        DataError: something else has its name, such as a directory.
    """
    if not os.path.lexists(path):
        reason = "is missing: the checkpoint was not finished, or the file was deleted"
        raise DamagedFileError(f"{path} {reason}")
    if not path.is_file():
        raise DataError(f"{path} is not a file; remove it")


def check_file(path: Path, checksum: str) -> None:
    """Checks that a file of a checkpoint is the one that was saved.

    Raises:
        DamagedFileError: the file is missing or damaged.
        DataError: the file cannot be read.
    """
    check_is_file(path)
    try:
        found = files.sha256(path)
    except PermissionError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}") from None
    except OSError as error:
        raise DamagedFileError(f"{path} cannot be read: {error.strerror}") from None
    if found != checksum:
        raise DamagedFileError(f"{path} is damaged or was replaced (its checksum differs)")


def read_intact(directory: Path, round_number: int) -> Manifest:
    """As `read`, and checks the arrays as `check_file` does."""
    manifest = read(directory, round_number)
    check_file(arrays_path(directory, round_number), manifest.arrays)
    return manifest


def checksum_of(path: Path) -> str | None:
    """The checksum of a file; None if it is missing or cannot be read."""
    try:
        return files.sha256(path)
    except OSError:
        return None


def newest_intact(directory: Path, settings: Mapping[str, Any]) -> Manifest | None:
    """The newest intact manifest of the run with the flat settings of a config.json; or None."""
    folder, digest = directory / CHECKPOINTS, settings_digest(settings)
    for number in reversed(rounds(folder)):
        try:
            manifest = read(folder, number)
        except DataError:
            continue
        if manifest.run.get("settings") == digest:
            return manifest
    return None


def newest_of(directory: Path) -> Manifest | None:
    """The newest intact manifest of the run in a directory; None also without its config.json."""
    try:
        return newest_intact(directory, files.read_json(directory / CONFIG))
    except (OSError, DamagedFileError):
        return None


def settings_digest(settings: Mapping[str, Any]) -> str:
    """Hash of the flat settings in a config.json, except for those that may change."""
    # Limits on what is read count with their defaults, with which earlier checkpoints are named.
    limits = {name: value for name, value in sources.LIMITS.items() if name in settings}
    known = without_implied({**settings, **limits})
    kept = {name: value for name, value in known.items() if name not in _MAY_CHANGE}
    return _checksum(json.dumps(kept, sort_keys=True))


def _checksum(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
