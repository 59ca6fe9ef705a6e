"""Runs of a comparison by partition and method, and what their summaries and histories say."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tff_pcdd.experiment.history import in_common
from tff_pcdd.experiment.nonfinite import is_lost
from tff_pcdd.training.run_directory import newest_checkpoint

if TYPE_CHECKING:
    from tff_pcdd.studies.study import StudyRun

# The method in which every client trains alone.
ALONE = "local"


def group_by_partition(runs: Sequence[StudyRun]) -> dict[str, list[StudyRun]]:
    """The runs of each partition, by its description."""
    return _group(runs, lambda run: run.config.data.partition.describe())


def group_by_method(runs: Sequence[StudyRun]) -> dict[str, list[StudyRun]]:
    """The runs of each method, by its name."""
    return _group(runs, lambda run: run.config.algorithm)


def _group(runs, key: Callable[[StudyRun], str]) -> dict[str, list[StudyRun]]:
    groups: dict[str, list] = {}
    for run in runs:
        groups.setdefault(key(run), []).append(run)
    return groups


def diverged_labels(runs: Sequence[StudyRun]) -> str:
    """The labels of the runs that diverged."""
    return ", ".join(run.label for run in runs if run.diverged)


def excluded_labels(runs: Sequence[StudyRun]) -> str:
    """The labels of the usable runs in which clients were excluded, and how often they were."""
    counts = [
        (run.label, (run.summary or {}).get("excluded_clients")) for run in runs if run.usable
    ]
    return ", ".join(f"{label} ({count} times)" for label, count in counts if count)


def different_data(runs: Sequence[StudyRun]) -> str:
    """The labels of runs whose samples differ although their settings of the data are the same.

    Finished runs are not computed again, also if files of the data have changed since. Runs without
    a checkpoint do not count.
    """
    differing = []
    for group in _group(runs, lambda run: repr(run.config.data)).values():
        by_data: dict[str, list[str]] = {}
        for run in group:
            manifest = (
                newest_checkpoint(run.folder, run.config.to_settings()) if run.usable else None
            )
            if manifest is not None and (data := manifest.run.get("data")):
                by_data.setdefault(data, []).append(run.label)
        if len(by_data) > 1:
            differing.append(" / ".join(map(", ".join, by_data.values())))
    return "; ".join(differing)


def _summaries(runs: Sequence[StudyRun]) -> list[Mapping[str, Any]]:
    """The summaries of all runs that have finished and have not diverged."""
    return [run.summary for run in runs if run.summary and run.usable]


def summary_values(runs: Sequence[StudyRun], key: str) -> list[Any]:
    """A value from the summary of every usable run; empty if one of them lacks it."""
    values = [summary.get(key) for summary in _summaries(runs)]
    return [] if None in values else values


def per_client(runs: Sequence[StudyRun], key: str) -> list[float]:
    """Traffic of one client in one round, in kB, for every usable run."""
    finished = _summaries(runs)
    if not all(summary.get("clients_per_round") for summary in finished):
        return []
    return [
        summary[key] / summary["rounds"] / summary["clients_per_round"] / 1000
        for summary in finished
    ]


def mean_curve(runs: Sequence[StudyRun]) -> dict[int, float]:
    """GA by round, averaged over seeds, in rounds that all have measured and none has lost."""
    curves = [
        [
            (row["round"], row["ga"])
            for row in run.history()
            if row.get("ga") is not None and not is_lost(row)
        ]
        for run in runs
        if run.usable
    ]
    return {number: statistics.fmean(values) for number, values in in_common(curves)}


def gain_over_local(run: StudyRun, runs: Sequence[StudyRun]) -> float | None:
    """PA of a run minus PA of the run of `local` with the same partition and seed, if both have it.

    Args:
        run: any run; one of `local` itself has no such value.
        runs: all runs.
    """
    if run.config.algorithm == ALONE:
        return None
    own = _summary_value(run, "pa_final")
    for other in runs:
        if (
            other.config.algorithm == ALONE
            and other.config.seed == run.config.seed
            and other.config.data.partition == run.config.data.partition
        ):
            alone = _summary_value(other, "pa_final")
            return None if own is None or alone is None else own - alone
    return None


def _summary_value(run: StudyRun, key: str) -> Any:
    """A value from the summary of a run; None if the run is not usable or lacks it."""
    return (run.summary or {}).get(key) if run.usable else None


def over_local(runs: Sequence[StudyRun]) -> dict[str, list[float]]:
    """For each method, the gains of its runs over `local`; empty if none is known."""
    gains: dict[str, list[float]] = {}
    for run in runs:
        gain = gain_over_local(run, runs)
        if gain is not None:
            gains.setdefault(run.config.algorithm, []).append(gain)
    return gains


def baseline_names(runs: Sequence[StudyRun]) -> list[str]:
    """The methods among the runs that are not federated; they are not ranked."""
    names = dict.fromkeys(run.config.algorithm for run in runs if run.config.method.baseline)
    return list(names)
