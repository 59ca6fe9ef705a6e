"""Runs that were trained before the files of their data changed.

The checkpoints of a run record which files were read. Runs of earlier versions, and runs on data
that are from no files, have no such record, so nothing is said about them.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from tff_pcdd.data import read_files
from tff_pcdd.data.checks import warned_before
from tff_pcdd.data.digest import data_digest
from tff_pcdd.data.sources import DataSource
from tff_pcdd.errors import SettingError
from tff_pcdd.experiment.config import ExperimentConfig
from tff_pcdd.training import manifests
from tff_pcdd.training.manifests import Manifest

_logger = logging.getLogger(__name__)

# The entry of the digests in a manifest.
KEY = "files"

# Changes of which `warn_of_results` has warned.
_said: set[tuple[str, str]] = set()

# The files of data sets, by their settings, within `listed_once`.
_listings: ContextVar[dict[str, Mapping[str, read_files.ReadFile]] | None]
_listings = ContextVar("listings", default=None)


@contextlib.contextmanager
def listed_once() -> Iterator[None]:
    """Within a study, whose runs mostly have the same data, lists the files of a data set once."""
    token = _listings.set({})
    try:
        yield
    finally:
        _listings.reset(token)


def warn_of_results(directory: Path, config: ExperimentConfig) -> None:
    """Warns of data that have changed since a run was trained that is not computed again.

    A study has many such runs: the same change is said once.
    """
    source = config.data.source
    found = _listing(source)
    changed = _changes(manifests.newest_of(directory), found) if found else ""
    if changed and (_place(source), changed) not in _said:
        _said.add((_place(source), changed))
        _logger.warning(
            "data_dir=%s has changed since runs such as %s were trained (%s); their results are "
            "those of the earlier data: compute them again with `overwrite`, or name another "
            "output_dir",
            _place(source),
            directory,
            changed,
        )


def refuse_mixture(
    begun: Iterable[tuple[ExperimentConfig, Path]], left: Sequence[ExperimentConfig]
) -> None:
    """Refuses to compute runs of a study whose data have changed since its other runs.

    Data are loaded only if their files have changed, to see whether the samples have.

    Args:
        begun: runs of the study with their directories, finished or not.
        left: those that are to be computed.

    Raises:
        SettingError: a run in the study was trained on other data.
        DataError: the data cannot be read.
    """
    places = {_place(config.data.source) for config in left} - {""}
    for config, directory in begun:
        source = config.data.source
        place = _place(source)
        if place not in places:
            continue
        found = _listing(source)
        manifest = manifests.newest_of(directory) if found else None
        changed = _changes(manifest, found)
        if manifest is None or not changed:
            continue
        with warned_before():
            digest = data_digest(config.data.build())
        if digest != manifest.run.get("data"):
            raise SettingError(
                "data_dir",
                place,
                f"has changed since {directory} was trained ({changed}), so the runs that are left "
                "could not be compared with it; bring the earlier files back, name another "
                "output_dir, or compute all runs again with `overwrite`",
            )


def describe(source: DataSource, manifest: Manifest) -> str:
    """Which data are not those of a checkpoint, for an error: " than data_dir=…"; may be empty."""
    changed = _changes(manifest, read_files.listing(source))
    what = f" ({changed})" if changed else ""
    return f" than those in data_dir={_place(source)} now{what}" if _place(source) else ""


def _listing(source: DataSource) -> Mapping[str, read_files.ReadFile]:
    """The files of a data set, from `read_files.listing`; see `listed_once`."""
    known = _listings.get()
    if known is None:
        return read_files.listing(source)
    if repr(source) not in known:
        known[repr(source)] = read_files.listing(source)
    return known[repr(source)]


def _place(source: DataSource) -> str:
    return str(getattr(source, "data_dir", None) or "")


def _changes(manifest: Manifest | None, found: Any) -> str:
    recorded = "" if manifest is None else manifest.run.get(KEY, "")
    return read_files.changes(recorded, found)
