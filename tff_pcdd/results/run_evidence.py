"""What the models of a run have answered, from its files: what its findings are made from."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tff_pcdd import data, findings, text
from tff_pcdd.findings import Evidence, Finding
from tff_pcdd.results import by_client, confusion
from tff_pcdd.results.by_client import RunClients
from tff_pcdd.results.confusion import Confusion
from tff_pcdd.results.reading import Directory
from tff_pcdd.training.file_names import CLIENTS, CONFIG, CONFUSION, METRICS

_logger = logging.getLogger(__name__)

# With fewer test samples, the standard error of an accuracy may be more than five points.
_FEW_SAMPLES = 100


def files_of(directory: Directory) -> tuple[RunClients | None, Confusion | None]:
    """What clients hold and what models answer; what is missing or damaged is noted there."""
    held = directory.attempt(CLIENTS, by_client.read, directory)
    number = len(held.clients) if held else None
    return held, directory.attempt(CONFUSION, confusion.read, directory, number)


def of_run(folder: Path) -> tuple[RunClients | None, Confusion | None]:
    """As `files_of`, of the run in a directory; warns of what is damaged."""
    directory = Directory(folder, compared=False)
    found = files_of(directory)
    for line in directory.damaged():
        _logger.warning("%s", line)
    return found


def read(directory: Directory) -> Evidence:
    """Reads what there is; files that are missing or damaged are noted in the directory."""
    return of(*files_of(directory))


def of(held: RunClients | None, found: Confusion | None) -> Evidence:
    """The evidence in what was read; None for what could not be read."""
    clients = held.clients if held else ()
    if found is None:
        return Evidence(clients=clients)
    return Evidence(found.classes, found.of_global, found.of_clients, clients)


def group_sizes(held: RunClients | None, answered: Confusion | None) -> str:
    """What GA on the many, medium and few classes is measured on, in words; empty if unknown."""
    found = None if answered is None else answered.of_global
    if held is None or found is None or not len(found) == len(held.classes) > 0:
        return ""
    groups = data.class_groups(held.counts.sum(axis=0, dtype=float))._asdict()
    tested = {name: int(found[own].sum()) for name, own in groups.items() if len(own)}
    sizes = [
        f"{name} {text.plural(len(groups[name]), 'class')} with "
        f"{text.plural(number, 'test sample')}"
        for name, number in tested.items()
    ]
    small = [name for name, n in tested.items() if len(groups[name]) == 1 or n < _FEW_SAMPLES]
    noise = f" Too little to tell methods apart: {text.listed(small)}." if small else ""
    return f"In GA: {text.listed(sizes)}.{noise}"


def findings_of(folder: Path | None, summary: Mapping[str, Any]) -> list[Finding]:
    """The findings of a finished run; those of an earlier version are computed."""
    if folder is None or findings.are_recorded(summary):
        return findings.recorded(summary)
    directory = Directory(folder, compared=False)
    settings = directory.load(folder / CONFIG)
    history = directory.attempt(METRICS, directory.history)
    if settings is None or history is None:
        return findings.recorded(summary)
    return [*findings.of_run(settings, summary, history, read(directory))]
