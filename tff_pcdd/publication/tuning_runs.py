"""The runs by which a sweep has chosen settings, and the time that all of its runs took."""

from __future__ import annotations

import glob
from collections.abc import Mapping, Sequence
from pathlib import Path

from tff_pcdd.report import comparison_results
from tff_pcdd.report.comparison_results import Result
from tff_pcdd.report.reading import Directory
from tff_pcdd.studies import tuning
from tff_pcdd.training.history import History
from tff_pcdd.training.results import METRICS


def read(
    path: Path, trials: Sequence[Mapping[str, str]], seeds: Sequence[int] | None
) -> list[dict[str, History]]:
    """For each point of a grid, the measurements of its runs by their seeds.

    Args:
        path: the directory of the sweep.
        trials: the points.
        seeds: the seeds that decided; None for all that there are.
    """
    directory = Directory(path, compared=False)
    found = []
    for trial in trials:
        point = f"{tuning.FOLDER}/{trial['algorithm']}/{trial['settings'] or 'default'}"
        folders = {
            folder.name.removeprefix("seed_"): folder.relative_to(path).as_posix()
            for folder in directory.folders(f"{glob.escape(point)}/seed_*/{METRICS}")
        }
        wanted = [seed for seed in folders if seeds is None or seed in map(str, seeds)]
        found.append({seed: directory.history(folders[seed]) for seed in wanted})
    return found


def seeds(runs: Sequence[Mapping[str, History]]) -> list[int]:
    return sorted({int(seed) for point in runs for seed in point if seed.isdecimal()})


def seconds(
    directory: Directory,
    runs: Sequence[Mapping[str, History]],
    results: Sequence[Result],
) -> float:
    """The time of the rounds of all runs, without start-up and evaluation.

    A round that was not evaluated has no row; it counts like the next one that has.
    """
    histories = [comparison_results.history(directory, result) for result in results]
    histories += [history for point in runs for history in point.values()]
    total = 0.0
    for history in histories:
        rounds = [0, *(history.column("round") if history is not None else ())]
        for before, row in zip(rounds, history or (), strict=False):
            total += (row["round"] - before) * (row.get("seconds") or 0.0)
    return total
