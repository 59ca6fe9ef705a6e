"""The table of all clients of a comparison: a row for each run and client."""

from __future__ import annotations

import functools
import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tff_pcdd.errors import DamagedFileError
from tff_pcdd.studies.run_groups import ALONE
from tff_pcdd.training import clients_table
from tff_pcdd.training.clients_table import Row
from tff_pcdd.training.results import CLIENTS

if TYPE_CHECKING:
    from tff_pcdd.studies.study import StudyRun

_logger = logging.getLogger(__name__)


def rows(runs: Sequence[StudyRun]) -> list[dict[str, Any]]:
    """The rows of the comparison's clients.csv.

    Args:
        runs: the runs of the comparison; those that have not finished are left out.

    Returns:
        For each run and client `partition`, `algorithm` and `seed`, and the columns of the run's
        clients.csv without those of single classes. `over_local` is how many percentage points the
        personal model is better than that of method `local` with the same partition and seed, if
        the comparison has such a run and it has not diverged.
    """
    tables = [(run, _read(run)) for run in runs if run.summary is not None]
    alone = {
        (*_key(run), row["client"]): row["pa"]
        for run, table in tables
        for row in table
        if run.config.algorithm == ALONE and run.usable
    }
    found = []
    for run, table in tables:
        partition, seed = _key(run)
        place = {"partition": partition, "algorithm": run.config.algorithm, "seed": seed}
        for row in table:
            known = run.config.algorithm != ALONE
            local = alone.get((partition, seed, row["client"])) if known else None
            found.append({**place, **clients_table.with_local(row, local)})
    return found


def _key(run: StudyRun) -> tuple[str, int]:
    return run.config.data.partition.describe(), run.config.seed


def _read(run: StudyRun) -> list[Row]:
    """The table of a run, with a warning if there is none."""
    try:
        return clients_table.read(run.folder / CLIENTS)
    except (FileNotFoundError, DamagedFileError) as error:
        _warn(f"{run.label}: the table of clients lacks this run ({error})")
        return []


@functools.cache
def _warn(text: str) -> None:
    """Warns once, although the table is written after every run."""
    _logger.warning("%s", text)
