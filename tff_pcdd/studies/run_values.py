"""What the tables of a comparison take from its runs; those that diverged have no values."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tff_pcdd.training.nonfinite import is_lost

if TYPE_CHECKING:
    from tff_pcdd.studies.study import StudyRun


def diverged(runs: Sequence[StudyRun]) -> str:
    """The labels of the runs that diverged."""
    return ", ".join(run.label for run in runs if run.diverged)


def excluded(runs: Sequence[StudyRun]) -> str:
    """The labels of the usable runs in which clients were excluded, and how often they were."""
    counts = [(run.label, summary.get("excluded_clients")) for run, summary in usable(runs)]
    return ", ".join(f"{label} ({count} times)" for label, count in counts if count)


def usable(runs: Sequence[StudyRun]) -> list[tuple[StudyRun, Mapping[str, Any]]]:
    """All runs that have finished and have not diverged, with their summaries."""
    return [(run, run.summary) for run in runs if run.summary and run.usable]


def summaries(runs: Sequence[StudyRun]) -> list[Mapping[str, Any]]:
    """The summaries of `usable`."""
    return [summary for _, summary in usable(runs)]


def values_of(runs: Sequence[StudyRun], key: str) -> list[Any]:
    """A value from the summary of every usable run; empty if one of them lacks it."""
    values = [summary.get(key) for summary in summaries(runs)]
    return [] if None in values else values


def traffic_per_client(runs: Sequence[StudyRun], key: str) -> list[float]:
    """Traffic of one client in one round, in kB, for every usable run."""
    finished = summaries(runs)
    if not all(summary.get("clients_per_round") for summary in finished):
        return []
    return [
        summary[key] / summary["rounds"] / summary["clients_per_round"] / 1000
        for summary in finished
    ]


def mean_curve(runs: Sequence[StudyRun]) -> dict[int, float]:
    """GA by round, averaged over seeds, without rounds that were lost."""
    curves = [
        {
            row["round"]: row["ga"]
            for row in run.history()
            if row.get("ga") is not None and not is_lost(row)
        }
        for run in runs
        if run.usable
    ]
    return {
        number: statistics.fmean(curve[number] for curve in curves)
        for number in (curves[0] if curves else ())
        if all(number in curve for curve in curves)
    }
