"""Summaries of several comparisons: ranks of the methods over federations, with paired tests."""

from __future__ import annotations

import dataclasses
import os
import statistics
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from tff_pcdd import files, tables
from tff_pcdd.errors import SettingError, nearest, question
from tff_pcdd.report import ranking_picture, ranking_tables, settings_table
from tff_pcdd.report.ranking_tables import MEASURES
from tff_pcdd.results import comparison_directory, ranks
from tff_pcdd.results.gains import units
from tff_pcdd.results.method_traits import has_global_model, is_baseline
from tff_pcdd.results.ranks import Probability
from tff_pcdd.results.reading import Directory
from tff_pcdd.results.run_results import Results
from tff_pcdd.studies import study
from tff_pcdd.studies.method_sweep import COMPARISON
from tff_pcdd.tables import BASELINE
from tff_pcdd.training import plots
from tff_pcdd.training.file_names import COMPARISON_TABLE

TABLES, CSV, PICTURE = "summary.md", "summary.csv", "summary.png"

DEFAULT = ("ga_final", "pa_before_final", "pa_final")


@dataclasses.dataclass(frozen=True)
class Federation:
    """The results of a comparison on one partition.

    Attributes:
        name: the data and their partition.
        results: the finished runs.
        without_global_model: methods among them whose GA is not that of a model; it is not ranked.
    """

    name: str
    results: Results
    without_global_model: Collection[str] = ()

    def values(self, method: str, measure: str) -> dict[str, float]:
        """The values of a method by seed, without runs that diverged."""
        return self.results.of(method=method).by_seed(measure)

    def scores(self, method: str, measure: str) -> dict[str, float]:
        """What ranks and tests count: the values by seed, and 0 for a run that diverged."""
        return self.results.of(method=method).by_seed(measure, diverged=0.0)

    def diverged(self, method: str) -> int:
        """The number of runs of a method that diverged."""
        return len(self.results.of(method=method).diverged)

    def epochs(self, method: str) -> list[int]:
        """After how many local epochs PA of a method's usable runs is measured."""
        found = self.results.of(method=method).values("personal_epochs")
        return [*dict.fromkeys(map(int, found))]

    def cell(self, method: str, measure: str) -> str:
        """The values of a method as mean ± deviation, and how many runs diverged."""
        lost = self.diverged(method)
        shown = tables.spread([*self.values(method, measure).values()], 1)
        return f"{shown}, {lost} diverged" if lost else shown


@dataclasses.dataclass(frozen=True)
class Ranking:
    """The methods by one measure.

    Attributes:
        measure: the column of comparison.csv.
        methods: the ranked methods, best average rank first; of those with the same accuracies in
            all runs, one.
        same: the others, by the one that is ranked.
        federations: the names of the federations.
        placed: the ranks, [federations, methods].
        friedman: the test of equal average ranks; None if it cannot be made.
        difference: Nemenyi's critical difference of average ranks; None with one federation.
        units: what the tests count: "federations", or with a single one its "seeds".
        number: the most of them that a test has.
        p_best, p_baseline: p-values by method.
        ahead: by method, the number of units in which it is ahead of FedAvg, and of all.
        alike: by method, the intraclass correlation of the differences to FedAvg with the seeds of
            a federation; NaN where it is not defined.
        lacking: methods that could be ranked, but lack runs on a federation.
    """

    measure: str
    methods: Sequence[str]
    same: Mapping[str, Sequence[str]]
    federations: Sequence[str]
    placed: np.ndarray
    friedman: ranks.Friedman | None
    difference: float | None
    units: str
    number: int
    p_best: Mapping[str, Probability]
    p_baseline: Mapping[str, Probability]
    ahead: Mapping[str, tuple[int, int]]
    alike: Mapping[str, float]
    lacking: Sequence[str] = ()

    @property
    def average(self) -> np.ndarray:
        return self.placed.mean(axis=0)

    @property
    def near_best(self) -> list[str]:
        """The other methods that Nemenyi's test cannot tell from the one with the best rank."""
        if self.difference is None:
            return list(self.methods[1:])
        behind = self.average[1:] - self.average[0]
        pairs = zip(self.methods[1:], behind, strict=True)
        return [method for method, ranks_behind in pairs if ranks_behind < self.difference]

    @property
    def separates(self) -> bool:
        """Whether Nemenyi's test can tell any method from the one with the best average rank."""
        return len(self.near_best) < len(self.methods) - 1


class Summary(NamedTuple):
    """What was written about several comparisons.

    Attributes:
        document: the text of summary.md.
        printed: its tables and tests for a terminal.
    """

    document: str
    printed: str


def summarize(
    comparison_dirs: Sequence[str | os.PathLike],
    output_dir: str | os.PathLike,
    measures: Sequence[str] = DEFAULT,
) -> Summary:
    """Writes summary.md, summary.csv and summary.png about several comparisons.

    Args:
        comparison_dirs: directories of comparisons, or of sweeps over methods.
        output_dir: the directory of the files.
        measures: keys of `MEASURES`.

    Raises:
        SettingError: a directory holds no comparison, is named twice, or a measure is unknown or
            was not measured; or fewer than two methods have runs on all federations.
        DamagedFileError: comparison.csv is damaged.
        WriteError: a file cannot be written.
    """
    for measure in measures:
        if measure not in MEASURES:
            meant = question(nearest(measure, MEASURES))
            reason = f"{measure} is not one of {', '.join(MEASURES)}{meant}"
            raise SettingError("measures", ",".join(measures), reason)
    federations = read(comparison_dirs)
    # Default measures may be missing; requested ones may not.
    for measure in measures if tuple(measures) != DEFAULT else ():
        if not any(
            result.values.get(measure) is not None for f in federations for result in f.results
        ):
            reason = f"{measure} was not measured in these comparisons"
            raise SettingError("measures", ",".join(measures), reason)
    rankings = [
        ranking for measure in measures if (ranking := rank(federations, measure)) is not None
    ]
    if not rankings:
        shown = ",".join(map(str, comparison_dirs))
        reason = "at least two methods need finished runs in all of them"
        raise SettingError("comparison_dirs", shown, reason)
    directory = Path(output_dir)
    files.make_directory(directory)
    document = ranking_tables.document(federations, rankings)
    files.write_text(directory / TABLES, document)
    study.write_csv(directory / CSV, ranking_tables.rows(federations, rankings))
    named = {ranking.measure: MEASURES[ranking.measure] for ranking in rankings}
    plots.save(ranking_picture.draw(rankings, named)[0], directory / PICTURE)
    return Summary(document, ranking_tables.printed(federations, rankings))


def read(comparison_dirs: Sequence[str | os.PathLike]) -> list[Federation]:
    """The results of comparisons, by data and partition.

    Raises:
        SettingError: a directory does not exist, holds no comparison, or is named twice.
        DamagedFileError: comparison.csv is damaged.
    """
    paths = [Path(path) for path in comparison_dirs]
    for path in paths:
        if not path.is_dir():
            raise SettingError("comparison_dirs", path, "is not a directory")
    if len({_comparison_in(path).resolve() for path in paths}) < len(paths):
        shown = ",".join(map(str, paths))
        raise SettingError("comparison_dirs", shown, "name each directory once")
    found: list[tuple[Path, Federation]] = []
    for path in paths:
        directory = Directory(_comparison_in(path), compared=False)
        try:
            results = comparison_directory.read_runs(directory)
        except FileNotFoundError:
            reason = f"holds no comparison: there is no {COMPARISON_TABLE}"
            raise SettingError("comparison_dirs", path, reason) from None
        for partition in results.partitions:
            own = results.of(partition=partition)
            lacking = {result.method for result in own if not has_global_model(result.method)}
            found.append((path, Federation(_name(directory, own, partition), own, lacking)))
    names = [federation.name for _, federation in found]
    folders = [(federation.name, path.name) for path, federation in found]
    named = []
    for path, federation in found:
        if names.count(federation.name) > 1:
            alike = folders.count((federation.name, path.name)) > 1
            name = f"{federation.name} ({path if alike else path.name})"
            federation = dataclasses.replace(federation, name=name)
        named.append(federation)
    return named


def _comparison_in(path: Path) -> Path:
    """The directory of the comparison, if the path is that of a sweep over methods."""
    inner = path / COMPARISON
    return inner if (inner / COMPARISON_TABLE).is_file() else path


def _name(directory: Directory, results: Results, partition: str) -> str:
    """The data and the partition, from the settings of a run if its directory is there."""
    for run in results.with_settings[:1]:
        config = settings_table.configuration(run.settings)
        if config is not None:
            return config.data.identify()
    return f"{directory.path.name}, {partition}"


def rank(federations: Sequence[Federation], measure: str) -> Ranking | None:
    """The ranking by a measure; None if fewer than two methods have it on all federations."""
    results = [result for federation in federations for result in federation.results]
    # They are not compared with methods.
    left_out = {result.method for result in results if is_baseline(result.method)}
    if measure.startswith(("ga_", "va_")):
        left_out.update(*(federation.without_global_model for federation in federations))
    every = [m for m in dict.fromkeys(result.method for result in results) if m not in left_out]
    methods = [m for m in every if all(f.scores(m, measure) for f in federations)]
    lacking = [method for method in every if method not in methods]
    if len(methods) < 2:
        return None
    same = _same(federations, measure, methods)
    if len(methods) > 1 + sum(map(len, same.values())):
        methods = [name for name in methods if not any(name in names for names in same.values())]
    else:  # All are equal.
        same = {}
    means = np.array(
        [
            [statistics.fmean(federation.scores(method, measure).values()) for method in methods]
            for federation in federations
        ]
    )
    placed = ranks.ranks(means)
    order = np.argsort(placed.mean(axis=0), kind="stable")
    methods = [methods[index] for index in order]
    against_best = _differences(federations, measure, methods, methods[0])
    has_baseline = BASELINE in methods
    pairs = _differences(federations, measure, methods, BASELINE) if has_baseline else {}
    several = len(federations) > 1
    to_best = {method: units(groups) for method, groups in against_best.items()}
    to_baseline = {method: units(groups) for method, groups in pairs.items()}
    return Ranking(
        measure,
        methods,
        same,
        [federation.name for federation in federations],
        placed[:, order],
        ranks.friedman(means),
        ranks.critical_difference(len(methods), len(federations)) if several else None,
        "federations" if several else "seeds",
        max(map(len, to_best.values())),
        _tested(to_best),
        _tested(to_baseline),
        {m: (sum(unit > 0 for unit in own), len(own)) for m, own in to_baseline.items()},
        {method: ranks.intraclass_correlation(groups) for method, groups in pairs.items()},
        lacking,
    )


def _same(
    federations: Sequence[Federation], measure: str, methods: Sequence[str]
) -> dict[str, list[str]]:
    """Methods that have the accuracies of another one in all runs, by that one.

    They are one method under several names; ranked twice, they would move all others and add tests.
    """
    values = {
        method: [federation.scores(method, measure) for federation in federations]
        for method in sorted(methods, key=lambda name: name != BASELINE)
    }
    found: dict[str, list[str]] = {}
    for method, own in values.items():
        for first in found:
            others = values[first]
            if all(
                {*a} == {*b} and ranks.same([*a.values()], [b[seed] for seed in a])
                for a, b in zip(own, others, strict=True)
            ):
                found[first].append(method)
                break
        else:
            found[method] = []
    return {method: names for method, names in found.items() if names}


def _differences(
    federations: Sequence[Federation], measure: str, methods: Sequence[str], other: str
) -> dict[str, list[list[float]]]:
    """By method, the differences to another one: for each federation, over the common seeds."""
    return {
        method: [
            tables.differences(*(each.scores(name, measure) for name in (method, other)))
            for each in federations
        ]
        for method in methods
        if method != other
    }


def _tested(differences: Mapping[str, Sequence[float]]) -> dict[str, Probability]:
    alone = {name: ranks.signed_rank(own) for name, own in differences.items()}
    return {name: Probability(alone[name], p) for name, p in ranks.holm(alone).items()}
