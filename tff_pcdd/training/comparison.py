"""Several methods, seeds and partitions side by side."""

from __future__ import annotations

import csv
import dataclasses
import io
import os
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tff_pcdd.data import DataError
from tff_pcdd.options import OptionError
from tff_pcdd.runtime import RuntimeStartError
from tff_pcdd.training import comparison_plots, comparison_tables, files, plots, sinks
from tff_pcdd.training.config import ExperimentConfig, RunOptions
from tff_pcdd.training.runs import check_directory, run_experiment

# What a comparison writes beside the folders of its runs.
_CSV, _MARKDOWN, _FAILURES = "comparison.csv", "comparison.md", "failures.txt"
_CURVES, _BARS = "comparison.png", "comparison_bars.png"


@dataclasses.dataclass(frozen=True)
class Run:
    """One run of a comparison, and what came out.

    Attributes:
        config: what is computed.
        folder: where.
        summary: as in summary.json; None before the run has finished.
        failure: the traceback of a run that failed.
    """

    config: ExperimentConfig
    folder: Path
    summary: Mapping[str, Any] | None = None
    failure: str = ""

    @property
    def method(self) -> str:
        return self.config.algorithm

    @property
    def partition(self) -> str:
        """Who holds what, in a few words."""
        return plots.describe_partition(self.config)

    @property
    def label(self) -> str:
        return f"{self.method} seed {self.config.seed}"

    def rows(self) -> list[dict[str, str]]:
        """The rows of the run's metrics file."""
        return sinks.read_rows(self.folder / "metrics.csv")


class Comparison(NamedTuple):
    """What a comparison hands back.

    Attributes:
        report: the tables of accuracies, as markdown.
        failures: a line for each run that failed.
    """

    report: str
    failures: list[str]


def compare(
    configs: Sequence[ExperimentConfig] | Mapping[str, Sequence[ExperimentConfig]],
    output_dir: str | os.PathLike,
    run: RunOptions | None = None,
    *,
    overwrite: bool = False,
) -> Comparison:
    """Runs experiments that differ in method, seed and partition, and writes the comparison.

    Tables are written anew after every run, pictures at the end. A run that fails is left for the
    next call, and the others go on.

    Args:
        configs: the experiments, which get the folders METHOD/seed_N; or, under the name of a
            folder for each partition, those on it, which get PARTITION/METHOD/seed_N.
        output_dir: gets these folders, comparison.csv, .md and .png, comparison_bars.png, and,
            where runs failed, failures.txt.
        run: how and where they are computed.
        overwrite: repeat what the directory holds already.

    Raises:
        OptionError: two experiments would share a folder, or the first cannot be run.
        data.DataError: the first experiment's data cannot be read.
        runtime.RuntimeStartError: the runtime cannot be started.
    """
    directory = Path(output_dir)
    runs = plan(configs, directory, overwrite=overwrite)
    for number, item in enumerate(runs):
        label = f"[{number + 1}/{len(runs)}] {item.label}"
        try:
            summary = run_experiment(
                item.config, item.folder, run, overwrite=overwrite, label=label
            )
            runs[number] = dataclasses.replace(item, summary=summary)
        except Exception as error:
            # What is wrong with the first run is most likely wrong with all of them.
            if number == 0 and isinstance(error, (OptionError, DataError, RuntimeStartError)):
                raise
            runs[number] = dataclasses.replace(item, failure=traceback.format_exc())
        _write_tables(directory, runs)
    _draw(directory, runs)
    return Comparison(comparison_tables.report(runs), [_failure(item) for item in _failed(runs)])


def plan(
    configs: Sequence[ExperimentConfig] | Mapping[str, Sequence[ExperimentConfig]],
    output_dir: str | os.PathLike,
    *,
    overwrite: bool = False,
) -> list[Run]:
    """The runs of a comparison, none of them computed; takes the arguments of `compare`.

    Raises:
        OptionError: two experiments would share a folder, or a folder cannot take its run.
    """
    directory = Path(output_dir)
    runs = _with_folders(configs, directory)
    known = {_CSV, *(item.folder.relative_to(directory).parts[0] for item in runs)}
    files.check_output(directory, "comparison", lambda path: path.name in known)
    # All of them before the first: a clash in the last folder must not cost the runs before it.
    for item in runs:
        check_directory(item.folder, item.config, overwrite)
    return runs


def _with_folders(configs, directory: Path) -> list[Run]:
    by_folder = configs if isinstance(configs, Mapping) else {"": configs}
    described = {plots.describe_partition(group[0]) for group in by_folder.values()}
    if len(described) < len(by_folder):
        raise OptionError("--partitions: name each partition once")
    runs = [
        Run(config, directory / name / config.algorithm / f"seed_{config.seed}")
        for name, group in by_folder.items()
        for config in group
    ]
    if len({item.folder for item in runs}) < len(runs):
        raise OptionError("--algorithms, --seeds: name each method and each seed once")
    return runs


def _failed(runs: Sequence[Run]) -> list[Run]:
    return [item for item in runs if item.failure]


def _failure(item: Run) -> str:
    """A failed run and the last line of its traceback."""
    return f"{item.label} ({item.partition}): {item.failure.strip().splitlines()[-1]}"


def _write_tables(directory: Path, runs: Sequence[Run]) -> None:
    if not directory.exists():  # the first run failed before it wrote anything
        directory.mkdir(parents=True)
    files.write_text(directory / _MARKDOWN, comparison_tables.document(runs))
    finished = [item for item in runs if item.summary]
    files.write_text(
        directory / _CSV,
        _csv([{"partition": item.partition, **item.summary} for item in finished]),
    )
    failures = directory / _FAILURES
    failures.unlink(missing_ok=True)
    if _failed(runs):
        texts = [f"{_failure(item)}\n\n{item.failure}" for item in _failed(runs)]
        files.write_text(failures, "\n".join(texts))


def _csv(rows: Sequence[Mapping[str, Any]]) -> str:
    """A row per finished run, with every column that any of them has."""
    columns = list(dict.fromkeys(name for row in rows for name in row))
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    for row in rows:
        writer.writerow({name: sinks.format_number(row.get(name)) for name in columns})
    return text.getvalue()


def _draw(directory: Path, runs: Sequence[Run]) -> None:
    results: dict[str, dict[str, list]] = {}
    for item in runs:
        if item.summary:
            methods = results.setdefault(item.partition, {})
            methods.setdefault(item.method, []).append(item.rows())
    if results:
        title = comparison_tables.setting(runs)
        plots.save(comparison_plots.curves(results, title)[0], directory / _CURVES)
        plots.save(comparison_plots.bars(results, title)[0], directory / _BARS)
