"""What the report of a comparison shows."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tff_pcdd import text
from tff_pcdd.errors import SettingError
from tff_pcdd.findings import Finding
from tff_pcdd.report import (
    cards,
    charts,
    client_tables,
    matrices,
    method_tables,
    pages,
    settings_table,
    terms,
)
from tff_pcdd.results import by_client, comparison_directory, method_traits, wording
from tff_pcdd.results.comparison_directory import Compared
from tff_pcdd.results.reading import Directory
from tff_pcdd.results.run_results import ALONE, Result, Results
from tff_pcdd.results.verdict import Answer
from tff_pcdd.training.file_names import CLIENTS, COMPARISON_TABLE, CONFIG, REPORT


@dataclasses.dataclass(frozen=True)
class Part:
    """The results on one partition.

    Attributes:
        name: the partition.
        accuracies: a line for each method.
        further: other values of each method; None without any.
        curves: GA and PA over the rounds.
        holdings: who holds which classes in one of the runs; None if unknown.
        holdings_of: which run that is, and whether others differ.
        clients: a line for each client; None if it is not known how well the models do there.
        gains: what the methods gain at each client; None if there is nothing to compare with.
        averaged: whether these values of clients are averaged over seeds.
        costs: a line for each method.
    """

    name: str
    accuracies: client_tables.Table
    further: client_tables.Table | None
    curves: Sequence[charts.Chart]
    holdings: matrices.Grid | None
    holdings_of: str
    clients: client_tables.Table | None
    gains: client_tables.HeatMap | None
    averaged: bool
    costs: client_tables.Table


def content(directory: Directory, page: Path | None = None) -> dict[str, Any]:
    """The values of the template comparison.html.

    Args:
        directory: that of the comparison.
        page: the directory of the page, to which its links are relative; by default the same.

    Raises:
        SettingError: the directory holds no comparison.
        DamagedFileError: comparison.csv is damaged.
    """
    try:
        found = comparison_directory.read(directory)
    except FileNotFoundError:
        reason = f"holds no comparison: there is no {COMPARISON_TABLE}"
        if (directory.path / CONFIG).exists():
            reason = "holds a run; name it with run_dir"
        raise SettingError("comparison_dir", directory.path, reason) from None
    results, answered = found.results, found.answers
    settings = [(run.method, run.settings) for run in results.with_settings]
    parts = [_part(name, directory, found) for name in results.partitions]
    exported, all_cards = cards.read(directory)
    common, varied = settings_table.common_and_varied(settings) if settings else ([], [])
    chosen, defaults = settings_table.divided(common)
    return {
        "title": _title(settings, results),
        "sentence": _sentence(results),
        "terms": terms.shown(
            ("GA", "PA"), (settings_table.configuration(values) for _, values in settings)
        ),
        "findings": [*found.findings, *(Finding("damaged", line) for line in directory.damaged())],
        "answers": [
            (answer.partition, wording.sentences(answer), _exports(answer, found))
            for answer in answered
        ],
        "parts": parts,
        "command": _command(results),
        "several_seeds": len({result.seed for result in results}) > 1,
        "has_local": ALONE in results.methods,
        "runs": [_run(directory, result, page or directory.path) for result in results],
        "chosen": chosen,
        "defaults": defaults,
        "varied": varied,
        "cards": exported,
        "more_cards": all_cards - len(exported),
        "problems": directory.problems,
    }


def _exports(answer: Answer, found: Compared) -> list[tuple[str, str]]:
    """Which models to take by the answer on a partition, and commands that export them."""
    own = found.results.of(partition=answer.partition).usable.with_settings
    runs = {run.method: run for run in reversed(own)}
    exports = []
    for each in answer.recommended:
        if each.method not in runs:
            continue
        run = runs[each.method]
        assert run.folder is not None
        config, name = run.folder / CONFIG, each.method
        models, why = wording.models(each), wording.reasons(answer, each)
        what = f"{models}: export {name}'s of seed {run.seed}{why}"
        command = settings_table.export_command(config, run.settings, name, each.flags)
        exports.append((what, command))
    return exports


def _command(results: Results) -> str:
    """The command of the comparison; empty for several partitions, which have settings each."""
    runs = results.with_settings
    if not runs or len(results.partitions) > 1:
        return ""
    seeds = list(dict.fromkeys(run.seed for run in runs))
    return settings_table.comparison_command([run.settings for run in runs], runs.methods, seeds)


def _title(settings: Sequence[tuple[str, Mapping[str, Any]]], results: Results) -> str:
    several = len(results.partitions) > 1
    named = [(m, settings_table.names(values, several=several)) for m, values in settings]
    titles = {method: title for method, (title, _) in named}
    names = [titles.get(method, method) for method in results.methods]
    what = text.listed(names, 4) if results else "No finished runs"
    return f"{what} on {named[0][1][1]}" if named else what


def _sentence(results: Results) -> str:
    """What was compared, in one sentence."""
    seeds = {result.seed for result in results}
    rounds = [int(result.values.get("rounds") or 0) for result in results] or [0]
    least, most = min(rounds), max(rounds)
    return (
        f"{text.plural(len(results), 'run')} of {text.plural(len(results.methods), 'method')} "
        f"with {text.plural(len(seeds), 'seed')} on "
        f"{text.plural(len(results.partitions), 'partition')}, "
        f"each for {least if least == most else f'{least} to {most}'} rounds."
    )


def _part(name: str, directory: Directory, found: Compared) -> Part:
    on_partition = found.results.of(partition=name)
    methods = method_traits.ordered(on_partition)
    answer = next((answer for answer in found.answers if answer.partition == name), None)
    gains = None
    if answer is not None and answer.at_clients:
        gains = client_tables.heat_map(answer.at_clients, methods, answer.recommended_gains)
    own = [client for client in found.clients if client.run[0] == name]
    return Part(
        name,
        method_tables.accuracies(on_partition, own),
        method_tables.further(on_partition),
        method_tables.curves(on_partition),
        *_holdings(directory, on_partition.with_settings),
        client_tables.of_comparison(own, methods) if own else None,
        gains,
        len({client.run[2] for client in own}) > 1 and not by_client.several_seeds(own),
        method_tables.costs(on_partition),
    )


def _holdings(directory: Directory, runs: Results) -> tuple[matrices.Grid | None, str]:
    """Who holds which classes, by the first of the runs whose clients are known."""
    for result in runs:
        assert result.folder is not None
        inside = Directory(result.folder, compared=False)
        held = directory.attempt(directory.place(result.folder / CLIENTS), by_client.read, inside)
        if held and held.classes:
            seeds = {f"{run.settings.get('data_seed')}" for run in runs}
            others = _other_seeds(result.settings) if len(seeds) > 1 else ""
            new = {f"{run.settings.get('new_clients_seed')}" for run in runs}
            if result.settings.get("new_clients") and len(new) > 1 and not others:
                others = "; other seeds have other new clients"
            return matrices.who_holds_what(held), f" with seed {result.seed}{others}"
    return None, ""


def _other_seeds(settings: Mapping[str, Any]) -> str:
    """What the data of other seeds differ in; empty for nothing."""
    if not comparison_directory.keeps_clients(settings):
        return "; other seeds divide the data anew"
    if settings.get("max_clients") is not None:
        return "; other seeds draw other clients"
    if settings.get("max_train_samples") is not None:
        return "; other seeds draw other samples of the same clients"
    held_out = settings.get("validation_fraction")
    return "; other seeds hold out other samples of the same clients" if held_out else ""


def _run(directory: Directory, result: Result, page: Path) -> dict[str, Any]:
    """A line of the list of runs; `page` is the directory of the page."""
    folder, report = "", None
    if result.folder is not None:
        folder = directory.place(result.folder)
        if (result.folder / REPORT).is_file():
            report = pages.address(result.folder / REPORT, page)
    return {
        "label": result.label,
        "folder": folder,
        "report": report,
        "diverged": result.diverged,
        "rounds": result.values.get("rounds"),
        "ga": result.values.get("ga_final"),
        "pa": result.values.get("pa_final"),
    }
