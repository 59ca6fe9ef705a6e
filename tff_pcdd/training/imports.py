"""The user's modules with which a run was trained, and whether they are the same now.

Nothing here imports a module: results may come from anyone.
"""

from __future__ import annotations

import itertools
import logging
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from tff_pcdd import files
from tff_pcdd.errors import DamagedFileError, SettingError
from tff_pcdd.training.file_names import CONFIG

_logger = logging.getLogger(__name__)

# The entry of config.json, which is not a setting.
KEY = "import"

# Changes of modules of which `warn_of_results` has warned.
_said: set[tuple[str, str, str]] = set()

# Where the runs of a study are.
_STUDY = ("*/seed_*", "*/*/seed_*")


def digests(names: Iterable[str]) -> dict[str, str]:
    """The SHA-256 hash of the file of each imported module; of a package, that of its __init__."""
    return {name: _digest(name) or "" for name in names}


def check(settings: Mapping[str, Any]) -> None:
    """Checks the entry of config.json."""
    known = recorded(settings)
    if KEY in settings and (not known or known != settings[KEY]):
        reason = "must be names of modules, each with the hash of its file"
        raise SettingError(KEY, settings[KEY], reason)


def recorded(settings: Mapping[str, Any]) -> dict[str, str]:
    """The modules in the contents of a config.json; what cannot be modules is left out."""
    found = settings.get(KEY)
    if not isinstance(found, dict):
        return {}
    return {
        name: digest
        for name, digest in found.items()
        if isinstance(digest, str) and all(part.isidentifier() for part in name.split("."))
    }


def missing(directory: Path) -> list[str]:
    """The modules that a run, or the first run of a study, has and this process lacks."""
    of_study = (path for form in _STUDY for path in directory.glob(f"{form}/{CONFIG}"))
    try:
        places = [directory / CONFIG, *itertools.islice(of_study, 1)]
    except (OSError, ValueError):
        return []
    names = {name: None for path in places for name in recorded(_contents(path))}
    return [name for name in names if name not in sys.modules]


def warn_of_changes(directory: Path, settings: Mapping[str, Any]) -> None:
    """Warns of modules that are not imported, or have changed since the run was trained."""
    for name, digest in recorded(settings).items():
        if name not in sys.modules:
            _logger.warning("%s was trained with import=%s; import it too", directory, name)
        elif digest != (_digest(name) or ""):
            _logger.warning(
                "%s has changed since %s was trained with it; results may differ", name, directory
            )


def warn_of_results(directory: Path) -> None:
    """Warns of modules that have changed since a run was trained that is not computed again.

    A study has many such runs: the same change is said once.
    """
    for name, digest in recorded(_contents(directory / CONFIG)).items():
        change = name, digest, _digest(name) or ""
        if name in sys.modules and digest != change[-1] and change not in _said:
            _said.add(change)
            _logger.warning(
                "%s has changed since runs such as %s were trained with it; they keep their "
                "results, and `overwrite` computes them again",
                name,
                directory,
            )


def _digest(name: str) -> str | None:
    """Hash of the file of a module; None if it is not imported or has no file."""
    path = getattr(sys.modules.get(name), "__file__", None)
    try:
        return files.sha256(path or "")
    except OSError:
        return None


def _contents(path: Path) -> dict[str, Any]:
    """The contents of a config.json; nothing if it cannot be read."""
    try:
        return files.read_json(path)
    except (OSError, DamagedFileError):
        return {}
