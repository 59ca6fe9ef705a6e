"""Several methods and seeds side by side."""

from __future__ import annotations

import csv
import io
import os
import statistics
from collections.abc import Sequence
from pathlib import Path

from tff_pcdd.options import OptionError
from tff_pcdd.training import files, plots, sinks
from tff_pcdd.training.config import ExperimentConfig, RunOptions
from tff_pcdd.training.runs import check_directory, run_experiment

# Columns of the table: key of the summary, heading.
_TABLE = {
    "ga_final": "GA",
    "ga_second_half": "GA, 2nd half",
    "pa_before_final": "PA before",
    "pa_before_masked_final": "PA before, own classes",
    "pa_final": "PA after",
    "seconds_per_round": "s/round",
}
_NOTE = (
    "GA: the global model on the whole test set after the last round, and averaged over the second "
    "half of the rounds. PA: mean over clients of the personal model on the client's own test "
    "part, before any local step and after the local epochs; 'own classes' leaves only the "
    "client's training classes to choose from. Accuracies in %, mean ± standard deviation over "
    "seeds; nothing was chosen on test data."
)


def compare(
    configs: Sequence[ExperimentConfig],
    output_dir: str | os.PathLike,
    run: RunOptions | None = None,
    *,
    overwrite: bool = False,
) -> str:
    """Runs experiments that differ in method and seed, and writes the comparison.

    Args:
        configs: the experiments; those of a method differ in the seed only.
        output_dir: gets METHOD/seed_N for each run, and comparison.csv, .md and .png.
        run: how and where they are computed.
        overwrite: repeat what the directory holds already.

    Returns:
        The table, as markdown.

    Raises:
        OptionError: two experiments would share a folder, or one cannot be run.
    """
    directory = Path(output_dir)
    folders = [directory / config.algorithm / f"seed_{config.seed}" for config in configs]
    if len(set(folders)) < len(folders):
        raise OptionError("--algorithms, --seeds: name each method and each seed once")
    ours = {"comparison.csv", *(config.algorithm for config in configs)}
    files.check_output(directory, "comparison", lambda path: path.name in ours)
    # All of them before the first: a clash in the last folder must not cost the runs before it.
    for config, folder in zip(configs, folders, strict=True):
        check_directory(folder, config, overwrite)
    summaries = []
    for number, (config, folder) in enumerate(zip(configs, folders, strict=True), 1):
        label = f"[{number}/{len(configs)}] {config.algorithm} seed {config.seed}"
        summaries.append(run_experiment(config, folder, run, overwrite=overwrite, label=label))
    _write_csv(directory / "comparison.csv", summaries)
    setting = plots.describe(configs[0])
    table = _table(summaries)
    files.write_text(directory / "comparison.md", f"# {setting}\n\n{table}\n\n{_NOTE}\n")
    metrics: dict[str, list] = {}
    for config, folder in zip(configs, folders, strict=True):
        metrics.setdefault(config.algorithm, []).append(sinks.read_rows(folder / "metrics.csv"))
    figure, _ = plots.comparison(metrics, setting)
    plots.save(figure, directory / "comparison.png")
    return f"{setting}\n\n{table}"


def _write_csv(path: Path, summaries) -> None:
    columns = list(dict.fromkeys(name for summary in summaries for name in summary))
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    for summary in summaries:
        writer.writerow({name: sinks.format_number(summary.get(name)) for name in columns})
    files.write_text(path, text.getvalue())


def _table(summaries) -> str:
    by_method: dict[str, list] = {}
    for summary in summaries:
        by_method.setdefault(summary["algorithm"], []).append(summary)
    lines = [["method", *_TABLE.values(), "seeds"]]
    for method, runs in by_method.items():
        cells = [_cell([run.get(key) for run in runs], key) for key in _TABLE]
        lines.append([method, *cells, str(len(runs))])
    widths = [max(len(line[index]) for line in lines) for index in range(len(lines[0]))]
    rows = ["| " + " | ".join(map(str.ljust, line, widths)) + " |" for line in lines]
    rows.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return "\n".join(rows)


def _cell(values, key: str) -> str:
    """Mean ± standard deviation over seeds (population form, as the plots)."""
    if any(value is None for value in values):
        return "–"
    digits = 3 if key == "seconds_per_round" else 1
    text = f"{statistics.fmean(values):.{digits}f}"
    return f"{text} ± {statistics.pstdev(values):.{digits}f}" if len(values) > 1 else text
