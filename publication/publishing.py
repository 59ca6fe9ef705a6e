"""Publishes a sweep over methods: the few files that a page about it needs, small enough to review.

`published` reads them.
"""

from __future__ import annotations

import csv
import glob
import io
import json
import math
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from publication import added_methods, held_out, published
from publication.published import CURVES, FINAL, HELD_OUT, RECORD, SCHEMA, TUNING
from tff_pcdd import calls, files, methods
from tff_pcdd._version import __version__
from tff_pcdd.errors import DamagedFileError, SettingError
from tff_pcdd.experiment.history import History
from tff_pcdd.report import settings_table
from tff_pcdd.results import comparison_directory, confusion
from tff_pcdd.results.reading import Directory
from tff_pcdd.results.run_results import Result, Results
from tff_pcdd.studies import method_sweep
from tff_pcdd.studies.method_sweep import COMPARISON
from tff_pcdd.tables import read_number
from tff_pcdd.training.file_names import COMPARISON_TABLE, CONFIG, METRICS, SWEEP_RUNS, SWEEP_TABLE
from tff_pcdd.training.run_directory import path_settings

# The most points of a published curve.
_POINTS = 30

# Columns of comparison.csv that are published, with the number of digits after the point.
_ACCURACIES = (
    *("va_best", "va_balanced_best", "ga_final", "ga_second_half"),
    *("pa_before_final", "pa_before_masked_final", "pa_final"),
    *("ga_many_final", "ga_medium_final", "ga_few_final"),
    *("pa_many_final", "pa_medium_final", "pa_few_final"),
)
_NUMBERS = (
    *("rounds", "best_round", "personal_epochs", "personal_parameters_per_client"),
    *("upload_bytes", "download_bytes", "excluded_clients"),
)
_DIGITS = {**dict.fromkeys(_ACCURACIES, 4), **dict.fromkeys(_NUMBERS, 0), "seconds_per_round": 6}

# Accuracies of the global model, further heads of it (ga_psi_final) and other metrics included.
_HEAD = re.compile(r"ga_\w+_final")

# The name of a federation is that of its folder, and part of addresses.
_NAME = re.compile(r"[\w.-]*\w[\w.-]*", re.ASCII)


def publish(
    sweep_dir: str | os.PathLike, publish_dir: str | os.PathLike, *, add_methods: bool = False
) -> Path:
    """Writes the results of a finished sweep over methods to a folder of the sweep's name.

    Args:
        sweep_dir: the directory of the sweep.
        publish_dir: the directory of the folders of all published sweeps.
        add_methods: keep the other methods that have been published in the folder.

    Returns:
        The folder. An earlier publication in it is replaced, or with `add_methods` extended.

    Raises:
        SettingError: the directory holds no finished sweep over methods, or its methods cannot be
            compared with those that have been published.
        DamagedFileError: a file of the sweep is damaged.
        WriteError: a file cannot be written.
    """
    path = Path(sweep_dir)
    if not path.is_dir():
        raise SettingError("sweep_dirs", path, "is not a directory")
    name = path.resolve().name
    if not _NAME.fullmatch(name):
        reason = "the name of a directory to publish must consist of letters, digits, -, _ and ."
        raise SettingError("sweep_dirs", path, reason)
    trials, calls = _trials(path), read_calls(path)
    directory = Directory(path / COMPARISON, compared=False)
    results = _finals(path, directory, trials, calls)
    _check_settings(path, directory, results)
    settings = [run.settings for run in results]
    config = settings_table.configuration(settings[0])
    if config is None:
        reason = f"config.json in {results[0].folder} cannot be used"
        raise SettingError("sweep_dirs", path, reason)
    tables = {FINAL: _final(results), TUNING: trials, CURVES: _curves(directory, results)}
    tuning = read_tuning(path, trials, calls[-1].get("seeds") if calls else None)
    if held := held_out.rows(trials, tuning):
        tables[HELD_OUT] = held
    record: dict[str, Any] = {
        "schema": SCHEMA,
        "version": __version__,
        "federation": config.data.identify(),
        "model": config.model.backbone.name,
        "num_classes": _num_classes(results),
        "rounds": config.training.rounds,
        "seeds": seeds(tuning),
        "final_seeds": sorted({int(result.seed) for result in results}),
        "seconds_of_rounds": round(seconds(tuning, results), 1),
        "calls": calls,
        "data_sha256": _data(path, results),
        "settings": _common(settings),
    }
    folder = Path(publish_dir) / name
    if add_methods:
        record, tables = added_methods.add(folder, record, tables)
    texts = {file: _csv(rows) for file, rows in tables.items()}
    record["sha256"] = {file: published.sha256(text) for file, text in texts.items()}
    record["record_sha256"] = published.record_sha256(record)
    files.make_directory(folder)
    for file, text in texts.items():
        files.write_text(folder / file, text)
    # Last, because it has the checksums of the others.
    files.write_text(folder / RECORD, json.dumps(record, indent=1, ensure_ascii=False) + "\n")
    return folder


def _trials(path: Path) -> list[dict[str, str]]:
    """The rows of sweep.csv: the points of each method's grid."""
    file = SWEEP_TABLE
    try:
        header, rows = Directory(path).table(file)
    except FileNotFoundError:
        reason = f"holds no sweep over methods: there is no {file}"
        raise SettingError("sweep_dirs", path, reason) from None
    if not {"algorithm", "settings", "va", "chosen"} <= set(header):
        reason = f"holds no sweep over methods: {file} is of another sweep"
        raise SettingError("sweep_dirs", path, reason)
    trials = [dict(zip(header, row, strict=True)) for row in rows]
    try:
        if lacking := sorted({"rounds", "stopped_after", "diverged", "failed"} - set(header)):
            raise ValueError(f"there is no column {lacking[0]!r}")
        for trial in trials:
            if read_number(trial["va"]) is None and trial["chosen"] == "True":
                raise ValueError(f"the chosen settings of {trial['algorithm']} have no accuracy")
            int(trial["rounds"])
    except ValueError as error:
        raise DamagedFileError(f"{path / file} is damaged ({error})") from None
    return trials


def _finals(
    path: Path,
    directory: Directory,
    trials: Sequence[Mapping[str, str]],
    calls: Sequence[Mapping[str, Any]],
) -> Results:
    """The final runs of the methods for which settings were chosen."""
    chosen = [trial["algorithm"] for trial in trials if trial["chosen"] == "True"]
    try:
        every = comparison_directory.read_runs(directory)
    except FileNotFoundError:
        every = Results([])
    found = Results([result for result in every if result.method in chosen])
    if odd := [result.seed for result in found if not result.seed.isdecimal()]:
        reason = f"is damaged (the seed {odd[0]} is no number)"
        raise DamagedFileError(f"{directory.path / COMPARISON_TABLE} {reason}")
    known = {(result.method, result.seed) for result in found}
    seeds = dict.fromkeys(result.seed for result in found)
    if calls:
        # Calls of earlier versions did not record them.
        seeds |= dict.fromkeys(map(str, calls[-1].get("final_seeds", ())))
    unfinished = sorted({trial["algorithm"] for trial in trials} - {*chosen})
    for name in unfinished:
        own = [trial for trial in trials if trial["algorithm"] == name]
        if all(trial["diverged"] == "True" and trial["failed"] == "False" for trial in own):
            reason = f"all settings of {name} diverged, so that nothing can be chosen for it; "
            reason += "try smaller learning rates, or leave it out of algorithms"
            raise SettingError("sweep_dirs", path, reason)
    missing = [f"{m} seed {s}" for m in chosen for s in seeds if (m, s) not in known]
    lacking = [f"{name}, for which nothing is chosen" for name in unfinished] + missing
    if calls and not lacking and not calls[-1].get("completed", "ended" in calls[-1]):
        lacking = ["the end of its last call"]
    if lacking or not found:
        more = f" and {len(lacking) - 3} more" if len(lacking) > 3 else ""
        reason = f"the sweep has not finished: it lacks {', '.join(lacking[:3]) or 'all'}{more}"
        raise SettingError("sweep_dirs", path, f"{reason}; the same command continues it")
    return found


def _check_settings(path: Path, directory: Directory, results: Results) -> None:
    """Refuses runs whose settings were not found."""
    without = [result for result in results if not result.settings]
    if without:
        lost = next((result.label for result in without if result.folder is None), None)
        damaged = [*directory.damaged(), f"{CONFIG} of {without[0].label} has no settings"]
        reason = f"the directory of {lost} is missing" if lost else damaged[0]
        raise SettingError("sweep_dirs", path, reason)


def _final(results: Sequence[Result]) -> list[dict[str, Any]]:
    """final.csv: a row for each method and seed."""
    known = methods.names()
    heads = sorted({name for result in results for name in result.values if _HEAD.fullmatch(name)})
    digits = {**_DIGITS, **dict.fromkeys(heads, 4)}
    rows = []
    for result in results:
        cls = methods.get(result.method) if result.method in known else None
        row: dict[str, Any] = {
            "algorithm": result.method,
            "seed": result.seed,
            "diverged": result.diverged,
            "global_model": cls is None or cls.has_global_model,
        }
        for column, places in digits.items():
            value = result.values.get(column)
            row[column] = "" if value is None else f"{value:.{places}f}"
        rows.append({**row, "config_digest": result.digest})
    return _without_empty(rows)


def _without_empty(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Rows without the columns that no row has."""
    kept = [column for column in rows[0] if any(row[column] != "" for row in rows)]
    return [{column: row[column] for column in kept} for row in rows]


def _curves(directory: Directory, results: Sequence[Result]) -> list[dict[str, Any]]:
    """curves.csv: GA after some of the rounds, a row for each method and seed."""
    curves = []
    for result in results:
        history = result.history
        if history is None:
            lines = directory.damaged()
            raise DamagedFileError(lines[0] if lines else f"{result.folder}: no {METRICS}")
        points = dict(history.points("ga") if result.diverged else history.usable_points("ga"))
        if not points and not result.diverged:
            raise DamagedFileError(f"{result.folder}: {METRICS} is damaged (it has no GA)")
        curves.append((result, points))
    # Runs that stopped early have the rounds of the others, and their own last one.
    common = _thinned(sorted({number for _, points in curves for number in points}))
    rows = [
        {
            "algorithm": result.method,
            "seed": result.seed,
            **{str(n): f"{points[n]:.2f}" for n in points if n in common or n == max(points)},
        }
        for result, points in curves
    ]
    rounds = sorted({int(name) for row in rows for name in row if name.isdigit()})
    names = ["algorithm", "seed", *map(str, rounds)]
    return [{name: row.get(name, "") for name in names} for row in rows]


def _thinned(rounds: Sequence[int]) -> set[int]:
    """Rounds at equal distances, with the first and the last one."""
    step = math.ceil(len(rounds) / _POINTS)
    return {rounds[0], *rounds[::-1][::step]} if rounds else set()


def _csv(rows: Sequence[Mapping[str, Any]]) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def _data(path: Path, results: Results) -> dict[str, str | None]:
    """The digest of the data of each final seed, from the checkpoints; None without one.

    Raises:
        SettingError: runs with the same seed had different data.
    """
    digests: dict[str, str | None] = {result.seed: None for result in results}
    for (_, seed), by_digest in comparison_directory.by_data(results).items():
        (digests[seed], (first, *_)), *others = by_digest.items()
        for _, (other, *_) in others:
            reason = f"{first.label} and {other.label} cannot be compared, because the data "
            reason += "have changed between them; run the sweep again with overwrite"
            raise SettingError("sweep_dirs", path, reason)
    return digests


def _num_classes(results: Sequence[Result]) -> int | None:
    """The number of classes that the models of a final run tell apart; None if no run saved it.

    It cannot be read from the settings: files of one's own have as many classes as occur in them.

    Raises:
        DamagedFileError: confusion.npz of a run is damaged.
    """
    for folder in [result.folder for result in results if result.folder]:
        try:
            return len(confusion.read(Directory(folder), None).classes)
        except FileNotFoundError:
            continue
    return None


def _common(settings: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The settings that all final runs share, without paths."""
    first, *others = settings
    return {
        name: value
        for name, value in first.items()
        if name not in path_settings()
        and all(name in other and other[name] == value for other in others)
    }


# The runs by which a sweep has chosen settings, and the time that all of its runs took.


def read_tuning(
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
        point = f"{SWEEP_RUNS}/{trial['algorithm']}/{trial['settings'] or 'default'}"
        folders = {
            folder.name.removeprefix("seed_"): folder.relative_to(path).as_posix()
            for folder in directory.folders(f"{glob.escape(point)}/seed_*/{METRICS}")
        }
        wanted = [seed for seed in folders if seeds is None or seed in map(str, seeds)]
        found.append({seed: directory.history(folders[seed]) for seed in wanted})
    return found


def seeds(runs: Sequence[Mapping[str, History]]) -> list[int]:
    return sorted({int(seed) for point in runs for seed in point if seed.isdecimal()})


def seconds(runs: Sequence[Mapping[str, History]], results: Sequence[Result]) -> float:
    """The time of the rounds of all runs, without start-up and evaluation.

    In runs of earlier versions, a round that was not evaluated has no row; it counts like the next
    one that has.
    """
    histories = [result.history for result in results]
    histories += [history for point in runs for history in point.values()]
    total = 0.0
    for history in histories:
        rounds = [0, *(history.column("round") if history is not None else ())]
        for before, row in zip(rounds, history or (), strict=False):
            total += (row["round"] - before) * (row.get("seconds") or 0.0)
    return total


# Reads which calls of a program computed a sweep, for its publication.


def read_calls(path: Path) -> list[dict[str, Any]]:
    """The calls of the program that computed a sweep; none for sweeps of earlier versions.

    Args:
        path: the directory of the sweep.

    Returns:
        What `calls` has recorded of each call, without paths of this machine. A call that was
        killed has no `seconds`.

    Raises:
        DamagedFileError: the record is damaged.
    """
    file = path / method_sweep.CALLS
    try:
        return [
            {**call, "arguments": _without_paths(call["arguments"])} for call in calls.read(file)
        ]
    except (AttributeError, KeyError, TypeError) as error:
        raise DamagedFileError(f"{file} is damaged ({error})") from None


def _without_paths(arguments: Sequence[str]) -> list[str]:
    """Arguments in which paths of this machine are replaced by the names of their flags.

    Example:
        >>> _without_paths(["--data_dir=/home/me/data", "--output_dir", "runs/a", "--rounds=60"])
        ['--data_dir=DATA_DIR', '--output_dir', 'OUTPUT_DIR', '--rounds=60']
    """
    paths, shown = {*path_settings(), "output_dir"}, []
    previous = ""
    for argument in arguments:
        name, equals, _ = argument.lstrip("-").partition("=")
        if previous in paths:
            shown.append(previous.upper())
        elif equals and name in paths:
            shown.append(f"--{name}={name.upper()}")
        else:
            shown.append(argument)
        previous = name if argument.startswith("-") and not equals else ""
    return shown
