"""Results of runs: which of them count, and their values by seed, means and curves.

The tables of comparisons and sweeps, the pages about them, rankings and published results all use
these rules:

- a run that diverged is not usable: it has no part in a mean, a difference or a curve;
- a mean over runs exists if all usable ones have the value;
- runs are compared with those of the same partition and seed;
- a mean curve has the rounds that all runs have measured, and none that one of them has lost.
"""

from __future__ import annotations

import dataclasses
import functools
import statistics
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tff_pcdd import tables
from tff_pcdd.experiment.history import History, in_common
from tff_pcdd.findings import Finding

# The method in which every client trains alone.
ALONE = "local"


@dataclasses.dataclass(frozen=True)
class Result:
    """A finished run.

    Attributes:
        partition, method, seed: which run it is, as they are shown.
        diverged: whether its results are not usable.
        values: its numbers, by their keys in summary.json.
        digest: the hash of its settings.
        folder: its directory; None if that was not found.
        name: its name in lists; by default method, seed and partition.
        settings: its flat settings; empty if they were not found.
        load_history: reads its measurements by round, see `history`.
        load_findings: reads its findings, see `findings`.
    """

    partition: str
    method: str
    seed: str
    diverged: bool
    values: Mapping[str, Any]
    digest: str = ""
    folder: Path | None = None
    name: str = ""
    settings: Mapping[str, Any] = dataclasses.field(default_factory=dict, compare=False)
    load_history: Callable[[], History | None] = dataclasses.field(
        default=lambda: None, compare=False
    )
    load_findings: Callable[[], Sequence[Finding]] = dataclasses.field(
        default=lambda: (), compare=False
    )

    @property
    def label(self) -> str:
        """The name of the run in lists."""
        return self.name or f"{self.method} seed {self.seed} ({self.partition})"

    @property
    def place(self) -> tuple[str, str]:
        """What runs that are compared have in common: partition and seed."""
        return self.partition, self.seed

    @functools.cached_property
    def history(self) -> History | None:
        """The measurements by round, read when they are first needed; None if unknown."""
        return self.load_history()

    @functools.cached_property
    def findings(self) -> Sequence[Finding]:
        """What is wrong with the run, and what to do about it; read when it is first needed."""
        return self.load_findings()

    def points(self, column: str) -> list[tuple[int, float]]:
        """The pairs of round and value of a column, without lost rounds; empty if unknown."""
        return self.history.usable_points(column) if self.history else []


class Results(Sequence[Result]):
    """Results of runs, in their order.

    Example:
        >>> runs = Results([Result("iid", "fedavg", str(seed), seed == 2, {"ga_final": 50.0 + seed})
        ...                 for seed in range(3)])
        >>> runs.values("ga_final"), runs.by_seed("ga_final", diverged=0.0)
        ([50.0, 51.0], {'0': 50.0, '1': 51.0, '2': 0.0})
    """

    def __init__(self, runs: Collection[Result]):
        self._runs = list(runs)

    def __len__(self) -> int:
        return len(self._runs)

    def __getitem__(self, index: Any) -> Any:
        return self._runs[index]

    def __iter__(self) -> Iterator[Result]:
        return iter(self._runs)

    @property
    def usable(self) -> Results:
        """The runs that did not diverge."""
        return Results([run for run in self if not run.diverged])

    @property
    def diverged(self) -> Results:
        """The runs that diverged."""
        return Results([run for run in self if run.diverged])

    @property
    def with_settings(self) -> Results:
        """The runs whose settings were found."""
        return Results([run for run in self if run.settings])

    @property
    def methods(self) -> list[str]:
        """The names of the methods, in the order of their first runs."""
        return list(dict.fromkeys(run.method for run in self))

    @property
    def partitions(self) -> list[str]:
        """The partitions, in the order of their first runs."""
        return list(dict.fromkeys(run.partition for run in self))

    @property
    def labels(self) -> str:
        """The labels of the runs, separated by commas."""
        return ", ".join(run.label for run in self)

    def of(self, *, method: str | None = None, partition: str | None = None) -> Results:
        """The runs of a method, of a partition, or of both."""
        return Results(
            [
                run
                for run in self
                if method in (None, run.method) and partition in (None, run.partition)
            ]
        )

    def by_method(self) -> dict[str, Results]:
        """The runs of each method."""
        return {method: self.of(method=method) for method in self.methods}

    def value_keys(self) -> list[str]:
        """The keys of all values, in their order."""
        return list(dict.fromkeys(key for run in self for key in run.values))

    def values(self, key: str) -> list[Any]:
        """A value of every usable run; empty if one of them lacks it."""
        found = [run.values.get(key) for run in self.usable]
        return [] if None in found else found

    def mean(self, key: str) -> float | None:
        """The mean of `values`; None without any."""
        return tables.mean(self.values(key))

    def by_seed(self, key: str, *, diverged: float | None = None) -> dict[str, float]:
        """A value by seed, of those runs of one method on one partition that have it.

        Args:
            key: the value.
            diverged: what counts as the value of runs that diverged; None leaves them out.
        """
        found = {run.seed: diverged if run.diverged else run.values.get(key) for run in self}
        return {seed: value for seed, value in found.items() if value is not None}

    def by_partition(self, method: str, key: str) -> list[dict[str, float]]:
        """A value of a method by seed, for each of the partitions of all methods."""
        own = self.of(method=method)
        return [own.of(partition=name).by_seed(key) for name in self.partitions]

    def gains(self, others: Results, key: str) -> list[float]:
        """By how much each usable run exceeds the usable one of `others` with its place."""
        known = {run.place: run.values.get(key) for run in others.usable}
        pairs = [(run.values.get(key), known.get(run.place)) for run in self.usable]
        return [own - other for own, other in pairs if own is not None and other is not None]

    def over_local(self) -> dict[str, list[float]]:
        """For each method, by how much PA exceeds that of training alone; empty if unknown."""
        alone, found = self.of(method=ALONE), {}
        for method, runs in self.by_method().items():
            if method != ALONE and (gains := runs.gains(alone, "pa_final")):
                found[method] = gains
        return found

    def bytes_per_client(self, key: str) -> list[float]:
        """Traffic of one client in one round, for every usable run; empty if one lacks it.

        Args:
            key: `upload_bytes` or `download_bytes`.
        """
        columns = [self.values(name) for name in (key, "rounds", "clients_per_round")]
        if not all(columns) or 0 in columns[1] or 0 in columns[2]:
            return []
        return [total / rounds / cohort for total, rounds, cohort in zip(*columns, strict=True)]

    def curve(self, column: str) -> list[tuple[int, list[float]]]:
        """The rounds that all usable runs with measurements have, with the values of each."""
        curves = [run.points(column) for run in self.usable]
        return in_common([curve for curve in curves if curve])

    def mean_curve(self, column: str) -> dict[int, float]:
        """The mean of `curve` by round."""
        return {number: statistics.fmean(values) for number, values in self.curve(column)}

    def excluded(self) -> list[tuple[str, int]]:
        """The labels of usable runs in which clients were excluded, and how often they were."""
        counts = [(run.label, run.values.get("excluded_clients")) for run in self.usable]
        return [(label, int(count)) for label, count in counts if count]
