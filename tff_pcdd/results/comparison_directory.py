"""Reads the directory of a comparison: its runs, and what its readers should see of them.

comparison.csv lists the runs, and their directories add settings, measurements and findings.
"""

from __future__ import annotations

import functools
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tff_pcdd import findings, tables
from tff_pcdd.data import partitions
from tff_pcdd.experiment.history import History
from tff_pcdd.findings import Finding
from tff_pcdd.results import by_client, comparison_findings, run_evidence, verdict
from tff_pcdd.results.by_client import ClientResult
from tff_pcdd.results.method_traits import is_re_trained
from tff_pcdd.results.reading import Directory
from tff_pcdd.results.run_results import Result, Results
from tff_pcdd.results.verdict import Answer
from tff_pcdd.tables import read_number
from tff_pcdd.text import name_of
from tff_pcdd.training import manifests
from tff_pcdd.training.file_names import (
    CLIENTS,
    COMPARISON_TABLE,
    CONFIG,
    FAILURES,
    METRICS,
    SUMMARY,
    SWEEP_RUNS,
    SWEEP_TABLE,
)

# Folders of runs: METHOD/seed_N, or PARTITION/METHOD/seed_N.
_FOLDERS = (f"*/seed_*/{CONFIG}", f"*/*/seed_*/{CONFIG}")


class Tuning(NamedTuple):
    """What a sweep has chosen with; empty without a sweep.

    Attributes:
        seeds: the seeds with which it has chosen.
        settings: the names of the settings that it has chosen.
    """

    seeds: Collection[int] = ()
    settings: Collection[str] = ()


UNTUNED = Tuning()


class Compared(NamedTuple):
    """What the directory of a comparison contains.

    Attributes:
        results: its finished runs.
        clients: the clients of the usable runs; empty if unknown. Where each seed has other
            clients, their names say of which seed they are.
        answers: as from `verdict.read`.
        findings: what a reader should know before believing the numbers, and what to do next.
    """

    results: Results
    clients: Sequence[ClientResult]
    answers: Sequence[Answer]
    findings: Sequence[Finding]


NOTHING = Compared(Results(()), (), (), ())


def read(directory: Directory, tuning: Tuning | None = None) -> Compared:
    """Reads a comparison; errors about comparison.csv as of `Directory`.

    Args:
        directory: its directory.
        tuning: what a sweep has chosen with; by default what is found beside the directory.
    """
    results = read_runs(directory)
    tuning = _tuning(directory) if tuning is None else tuning
    clients = _clients(directory, results)
    changed = comparison_findings.of_changed_data(by_data(results))
    answered = verdict.read(results, clients, tuning.seeds)
    if changed:
        # Nothing is answered on partitions whose runs differ in their data, nor over all.
        answered = [each for each in answered if each.partition not in {"", *changed}]
    found = comparison_findings.of_comparison(
        results,
        answered,
        changed,
        has_failures=(directory.path / FAILURES).exists(),
        left_out=_left_out(directory, results),
        tuned=tuning.settings,
    )
    trained = [client for client in clients if not client.new]
    return Compared(results, trained, answered, found)


def _clients(directory: Directory, results: Results) -> list[ClientResult]:
    """The clients of the usable runs, see `Compared`."""
    lost = {(run.partition, run.method, run.seed) for run in results.diverged}
    every = directory.attempt(CLIENTS, by_client.read_all, directory) or []
    anew = _divided_anew(results.with_settings)
    return [
        client.of_seed() if client.run[0] in anew else client
        for client in every
        if client.run not in lost
    ]


def read_runs(directory: Directory) -> Results:
    """Reads the finished runs of a comparison; errors about comparison.csv as of `Directory`."""
    every = directory.rows(COMPARISON_TABLE)
    found = _summaries(directory)
    results = []
    with directory.checked(COMPARISON_TABLE):
        several = len({cells["partition"] for cells in every}) > 1
        for cells in every:
            where = f" ({name_of(cells['partition'])})" if several else ""
            digest = cells.get("config_digest", "")
            folder, summary = found.get(digest, (None, {}))
            settings = {} if folder is None else directory.load(folder / CONFIG) or {}
            titled = _titled(settings, cells["algorithm"])
            skipped = {"partition", "algorithm", "config_digest", "diverged"}
            results.append(
                Result(
                    partition=name_of(cells["partition"]),
                    method=name_of(cells["algorithm"]),
                    seed=name_of(cells["seed"]),
                    diverged=cells.get("diverged") == "True",
                    values={
                        name: _number(cell) for name, cell in cells.items() if name not in skipped
                    },
                    digest=digest,
                    folder=folder,
                    # As programs name it.
                    name=name_of(f"{titled} seed {cells['seed']}") + where,
                    settings=settings,
                    load_history=functools.partial(history, directory, folder),
                    load_findings=functools.partial(run_evidence.findings_of, folder, summary),
                )
            )
    return Results(results)


def _titled(settings: Mapping[str, Any], method: str) -> str:
    """The name of a method, with the head calibration of a run unless it implies one."""
    calibration = settings.get("head_calibration") or "none"
    implied = is_re_trained(method)
    return method if implied or calibration == "none" else f"{method} with {calibration}"


def _number(cell: str) -> float | None:
    """A number; None for other text, such as in columns of later versions."""
    try:
        return read_number(cell)
    except ValueError:
        return None


def _summaries(directory: Directory) -> dict[str, tuple[Path, Mapping[str, Any]]]:
    """The directories and summaries of finished runs, by the hashes of their settings."""
    found: dict[str, tuple[Path, Mapping[str, Any]]] = {}
    for pattern in _FOLDERS:
        for folder in directory.folders(pattern):
            summary = directory.load(folder / SUMMARY) or {}
            found[str(summary.get("config_digest"))] = folder, summary
    return found


def _left_out(directory: Directory, results: Sequence[Result]) -> list[str]:
    """The folders of finished runs in the directory that the comparison has not named."""
    named = {result.folder for result in results}
    return [
        directory.place(folder)
        for pattern in _FOLDERS
        for folder in directory.folders(pattern)
        if folder not in named and (folder / SUMMARY).is_file()
    ]


def keeps_clients(settings: Mapping[str, Any]) -> bool:
    """Whether runs with other seeds have the same clients, though maybe not the same samples."""
    divided = partitions.registry.classes().get(settings.get("partition", ""))
    keeps_users = divided is not None and divided.keeps_users
    return keeps_users and settings.get("split_centres") is None


def _divided_anew(runs: Results) -> set[str]:
    """The partitions of which each seed has other clients, although they have the same names."""
    seeds = tables.grouped(
        (run.partition, run.settings.get("data_seed"))
        for run in runs
        if not keeps_clients(run.settings)
    )
    return {name for name, found in seeds.items() if len({*found}) > 1}


def by_data(results: Results) -> dict[tuple[str, str], dict[str, list[Result]]]:
    """The runs that had the same data, by partition and seed, and by the digest of the data.

    Runs of one partition with one seed can be compared if they have one digest. Runs without a
    checkpoint, of which nothing is known, are left out.
    """
    found: dict[tuple[str, str], dict[str, list[Result]]] = {}
    for result in results.with_settings:
        if result.folder is None:
            continue
        manifest = manifests.newest_intact(result.folder, result.settings)
        if manifest is not None and (digest := manifest.run.get("data")):
            group = found.setdefault((result.partition, result.seed), {})
            group.setdefault(digest, []).append(result)
    return found


def _tuning(directory: Directory) -> Tuning:
    """What a sweep has chosen the settings with, if the comparison is a part of one."""
    sweep = Directory(directory.path.resolve().parent, compared=False)
    if not (sweep.path / SWEEP_TABLE).is_file():
        return UNTUNED
    runs = [*sweep.folders(f"{SWEEP_RUNS}/*/*/seed_*/{CONFIG}")]
    seeds = (run.name.removeprefix("seed_") for run in runs)
    return Tuning(
        {int(seed) for seed in seeds if seed.isdecimal()},
        {name for run in runs for name in findings.read_point(run.parent.name)},
    )


def history(directory: Directory, folder: Path | None) -> History | None:
    """The measurements of a run; None if its directory was not found, or cannot be read."""
    if folder is None:
        return None
    name = directory.place(folder)
    return directory.attempt(f"{name}/{METRICS}", directory.history, name)
