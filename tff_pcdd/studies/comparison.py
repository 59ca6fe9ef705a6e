"""Comparisons of methods, over several seeds and partitions."""

from __future__ import annotations

import functools
import logging
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from etils import epy

from tff_pcdd import files, stages
from tff_pcdd.errors import DamagedFileError, SettingError
from tff_pcdd.experiment.config import check_is_config
from tff_pcdd.findings import Finding
from tff_pcdd.results import comparison_directory
from tff_pcdd.results.comparison_directory import NOTHING, UNTUNED, Tuning
from tff_pcdd.results.reading import Directory
from tff_pcdd.results.run_results import ALONE, Results
from tff_pcdd.studies import comparison_tables, study
from tff_pcdd.studies.parallel import ParallelOptions
from tff_pcdd.studies.study import StudyRun, results_of
from tff_pcdd.studies.table_options import TableOptions
from tff_pcdd.training import ExperimentConfig, History, RunOptions, clients_table, start
from tff_pcdd.training.clients_table import Row
from tff_pcdd.training.file_names import CLIENTS, COMPARISON_TABLE

_logger = logging.getLogger(__name__)


# Matplotlib is not needed before the last run.
with epy.lazy_imports():
    from tff_pcdd.studies import comparison_plots
    from tff_pcdd.training import plots


_ROUNDS, _TABLES = "rounds.csv", "comparison.md"
_CURVES, _BARS, _PRUNING = "comparison.png", "comparison_bars.png", "comparison_pruning.png"
# Not clients.csv, because the directory of a run has one too.
_FILES = (COMPARISON_TABLE, _ROUNDS, _TABLES, _CURVES, _BARS, _PRUNING)


class Comparison(NamedTuple):
    """The result of a comparison.

    Attributes:
        report: the main accuracies, the answer and the findings, for a terminal.
        failures: a line for each run that failed.
    """

    report: str
    failures: list[str]

    def __repr__(self) -> str:
        return f"Comparison({len(self.failures)} failed; print(comparison.report) shows the rest)"


def compare(
    configs: Sequence[ExperimentConfig] | Mapping[str, Sequence[ExperimentConfig]],
    output_dir: str | os.PathLike,
    options: RunOptions | None = None,
    *,
    overwrite: bool = False,
    parallel: ParallelOptions | None = None,
    tables: TableOptions | None = None,
    report: bool = True,
) -> Comparison:
    """Runs experiments that differ in method, seed and partition, and writes the comparison.

    The tables are updated after every run that is computed; rounds.csv and the pictures are written
    at the end. If a run fails, the others continue, and the next call tries it again.

    Args:
        configs: the experiments, each in a folder METHOD/seed_N; or a mapping from the folder of
            each partition to the experiments on it, each in a folder PARTITION/METHOD/seed_N.
        output_dir: the directory of these folders, comparison.csv, .md and .png,
            comparison_bars.png, clients.csv, rounds.csv, and failures.txt if runs failed.
        options: how and where the experiments are computed.
        overwrite: delete earlier results in these folders and start again.
        parallel: how many runs are computed at the same time; by default one, in this process.
        tables: what the tables show.
        report: write report.html for the comparison and for each run; if that fails, warn.

    Raises:
        SettingError: two experiments would share a folder, or one of them cannot be run.
        DataError: the data of the first experiment cannot be read.
        RuntimeStartError: the runtime cannot be started.
        WriteError: a result cannot be written. The next call continues from there.
    """
    directory = Path(output_dir)
    with study.computer(options, parallel) as computer:
        comparison, _ = compute(configs, directory, computer, overwrite=overwrite, tables=tables)
    if report:
        start.write_report(comparison_dir=directory)
    return comparison


def compute(
    configs: Sequence[ExperimentConfig] | Mapping[str, Sequence[ExperimentConfig]],
    directory: Path,
    computer: study.Computer,
    *,
    overwrite: bool,
    tuning: Tuning = UNTUNED,
    tables: TableOptions | None = None,
) -> tuple[Comparison, Sequence[Finding]]:
    """As `compare`, with what computes the runs, what a sweep has chosen with, and its `tables`.

    Returns:
        What `compare` returns, and the findings.
    """
    target = (tables or TableOptions()).target_accuracy
    runs = study.run_all(
        plan(configs, directory, overwrite=overwrite),
        directory,
        computer,
        overwrite=overwrite,
        after_each=lambda runs: _write_tables(directory, runs, target),
    )
    study.write_csv(directory / _ROUNDS, _rounds(runs))
    stages.enter("drawing pictures")
    _draw(directory, runs)
    stages.leave()
    written, read = Directory(directory, compared=False), comparison_directory.read
    found = written.attempt(COMPARISON_TABLE, read, written, tuning) or NOTHING
    for line in written.damaged():
        _warn(f"the answer and the findings lack what cannot be read: {line}")
    document = comparison_tables.document(runs, found.findings, found.answers, target)
    files.write_text(directory / _TABLES, document)
    report = comparison_tables.report(runs, found.answers, found.findings)
    return Comparison(report, study.failures(runs)), found.findings


def plan(
    configs: Sequence[ExperimentConfig] | Mapping[str, Sequence[ExperimentConfig]],
    output_dir: str | os.PathLike,
    *,
    overwrite: bool = False,
) -> list[StudyRun]:
    """Lists the runs of a comparison without computing them; takes the arguments of `compare`.

    Raises:
        SettingError: two experiments would share a folder, or a folder contains something else.
    """
    directory = Path(output_dir)
    by_folder = configs if isinstance(configs, Mapping) else {"": configs}
    for group in by_folder.values():
        for config in group if isinstance(group, Sequence) else [group]:
            check_is_config(config)
        if not isinstance(group, Sequence):
            reason = "must be a sequence of them, one for each method and seed of a partition"
            raise SettingError("configs", group, reason)
    partitions = {group[0].data.partition.describe() for group in by_folder.values()}
    if len(partitions) < len(by_folder):
        raise SettingError("partitions", None, "name each partition once")
    runs = []
    for name, group in by_folder.items():
        for config in group:
            folder = directory / name / config.algorithm / f"seed_{config.seed}"
            where = f" on {config.data.partition.describe()}" if len(partitions) > 1 else ""
            runs.append(
                StudyRun(config, folder, f"{config.method_title} seed {config.seed}{where}")
            )
    if len({item.folder for item in runs}) < len(runs):
        raise SettingError("algorithms and seeds", None, "name each method and each seed once")
    study.check(runs, directory, holds="comparison", known=_FILES, overwrite=overwrite)
    return runs


def _write_tables(directory: Path, runs: Sequence[StudyRun], target: float | None) -> None:
    files.write_text(directory / _TABLES, comparison_tables.document(runs, target=target))
    results, rows = results_of(runs), []
    alone = results.of(method=ALONE)
    for run in results:
        gains = [] if run.method == ALONE else Results([run]).gains(alone, "pa_final")
        known = {"pa_over_local": gains[0]} if gains else {}
        rows.append({"partition": run.partition, **run.values, **known})
    study.write_csv(directory / COMPARISON_TABLE, rows)
    study.write_csv(directory / CLIENTS, client_rows(runs))


def _rounds(runs: Sequence[StudyRun]) -> list[dict[str, Any]]:
    """A row for each run and round, with the columns of metrics.csv."""
    return [
        {
            "partition": item.partition,
            "algorithm": item.config.algorithm,
            "seed": item.config.seed,
            **row,
        }
        for item in runs
        if item.summary
        for row in item.history()
    ]


def _draw(directory: Path, runs: Sequence[StudyRun]) -> None:
    results: dict[str, dict[str, list[History]]] = {}
    diverged: dict[str, dict[str, list[History]]] = {}
    for item in runs:
        if item.summary:
            partition, method = item.partition, item.config.algorithm
            # Both name all methods, so that one of which all runs have diverged is drawn.
            for group in (results, diverged):
                group.setdefault(partition, {}).setdefault(method, [])
            group = diverged if item.diverged else results
            group[partition][method].append(item.history())
    if results:
        title = comparison_tables.common_setting(runs)
        figure, _ = comparison_plots.curves(results, title, diverged)
        plots.save(figure, directory / _CURVES)
        figure, _ = comparison_plots.bars(results, title, diverged)
        plots.save(figure, directory / _BARS)
        if comparison_plots.has_pruning(results):
            figure, _ = comparison_plots.pruning_curves(results, title)
            plots.save(figure, directory / _PRUNING)


# The table of all clients of a comparison: a row for each run and client.


def client_rows(runs: Sequence[StudyRun]) -> list[dict[str, Any]]:
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
        (run.partition, run.config.seed, row["client"]): row["pa"]
        for run, table in tables
        for row in table
        if run.config.algorithm == ALONE and run.usable
    }
    found = []
    for run, table in tables:
        partition, method, seed = run.partition, run.config.algorithm, run.config.seed
        place = {"partition": partition, "algorithm": method, "seed": seed}
        for row in table:
            local = None if method == ALONE else alone.get((partition, seed, row["client"]))
            found.append({**place, **clients_table.with_local(row, local)})
    return found


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
