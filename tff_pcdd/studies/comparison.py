"""Several methods, seeds and partitions side by side."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from tff_pcdd import files
from tff_pcdd.options import OptionError
from tff_pcdd.training import campaign, comparison_plots, comparison_tables, plots
from tff_pcdd.training.campaign import Run
from tff_pcdd.training.config import ExperimentConfig, RunOptions

_CSV = "comparison.csv"


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
    runs = campaign.run_all(
        plan(configs, directory, overwrite=overwrite),
        directory,
        run,
        overwrite=overwrite,
        after_each=lambda runs: _write_tables(directory, runs),
    )
    _draw(directory, runs)
    return Comparison(comparison_tables.report(runs), campaign.failures(runs))


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
    by_folder = configs if isinstance(configs, Mapping) else {"": configs}
    partitions = {plots.describe_partition(group[0]) for group in by_folder.values()}
    if len(partitions) < len(by_folder):
        raise OptionError("--partitions: name each partition once")
    runs = []
    for name, group in by_folder.items():
        for config in group:
            folder = directory / name / config.algorithm / f"seed_{config.seed}"
            where = f" on {plots.describe_partition(config)}" if len(partitions) > 1 else ""
            runs.append(Run(config, folder, f"{config.algorithm} seed {config.seed}{where}"))
    if len({item.folder for item in runs}) < len(runs):
        raise OptionError("--algorithms, --seeds: name each method and each seed once")
    campaign.check(runs, directory, holds="comparison", known={_CSV}, overwrite=overwrite)
    return runs


def _write_tables(directory: Path, runs: Sequence[Run]) -> None:
    files.write_text(directory / "comparison.md", comparison_tables.document(runs))
    campaign.write_csv(
        directory / _CSV,
        [
            {"partition": plots.describe_partition(item.config), **item.summary}
            for item in runs
            if item.summary
        ],
    )


def _draw(directory: Path, runs: Sequence[Run]) -> None:
    results: dict[str, dict[str, list]] = {}
    for item in runs:
        if item.summary:
            methods = results.setdefault(plots.describe_partition(item.config), {})
            methods.setdefault(item.config.algorithm, []).append(item.rows())
    if results:
        title = comparison_tables.setting(runs)
        plots.save(comparison_plots.curves(results, title)[0], directory / "comparison.png")
        plots.save(comparison_plots.bars(results, title)[0], directory / "comparison_bars.png")
