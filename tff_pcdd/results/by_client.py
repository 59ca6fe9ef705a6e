"""clients.csv: what each client holds, and how well the models answer there."""

from __future__ import annotations

import dataclasses
import itertools
import statistics
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from tff_pcdd import tables
from tff_pcdd.results.reading import Directory
from tff_pcdd.tables import grouped
from tff_pcdd.text import name_of
from tff_pcdd.training.clients_table import ClientResult, fixed, parse
from tff_pcdd.training.file_names import CLIENTS, CONFIG

_TRAIN = "train_"
_RUN = ("partition", "algorithm", "seed")


@dataclasses.dataclass(frozen=True)
class RunClients:
    """The clients of a federation that train, in its order.

    Attributes:
        clients: one entry for each client.
        classes: the names of the classes, as they are shown.
        counts: training samples by client and class, [K, C].
        new: the same of the clients that take no part in training; None if there are none.
    """

    clients: Sequence[ClientResult]
    classes: Sequence[str]
    counts: np.ndarray
    new: RunClients | None = None

    def held(self, index: int) -> int:
        """How many classes a client holds."""
        return int((self.counts[index] > 0).sum())


def read(directory: Directory) -> RunClients:
    """Reads the clients of a run; errors as of `Directory`."""
    header, rows = directory.table(CLIENTS)
    with directory.checked(CLIENTS):
        columns = fixed(header)
        # The names of classes are anything, even "samples": their columns are told by position.
        of_classes = header[len(columns) :]
        classes = [*itertools.takewhile(lambda name: name.startswith(_TRAIN), of_classes)]
        found = []
        for row in rows:
            client = ClientResult.of(parse(dict(zip(columns, row, strict=False))))
            held = row[len(columns) : len(columns) + len(classes)]
            found.append((client, [tables.read_count(cell) for cell in held]))
    names = [name_of(name.removeprefix(_TRAIN)) for name in classes]

    def of(
        own: Sequence[tuple[ClientResult, list[int]]], new: RunClients | None = None
    ) -> RunClients:
        counts = np.array([held for _, held in own], np.int64).reshape(len(own), len(names))
        return RunClients([client for client, _ in own], names, counts, new)

    new = [pair for pair in found if pair[0].new]
    return of([pair for pair in found if not pair[0].new], of(new) if new else None)


def held_out(run: Path) -> int:
    """About how many samples the clients of a run hold out, by its files; 0 if it is unknown.

    Its clients.csv has the samples that are left for training.
    """
    directory = Directory(run, compared=False)
    share = (directory.load(run / CONFIG) or {}).get("validation_fraction")
    found = directory.attempt(CLIENTS, read, directory)
    if found is None or not isinstance(share, float) or not 0 < share < 1:
        return 0
    return sum(round(client.train * share / (1 - share)) for client in found.clients)


def read_all(directory: Directory) -> list[ClientResult]:
    """Reads the clients of all runs of a comparison; errors as of `Directory`."""
    every = directory.rows(CLIENTS)
    with directory.checked(CLIENTS):
        return [
            ClientResult.of(parse(each), tuple(name_of(each[key]) for key in _RUN))
            for each in every
        ]


def without_global_model(clients: Sequence[ClientResult]) -> bool:
    """Whether the method has no global model, so that no client has an accuracy of it."""
    return bool(clients) and all(client.values["ga"] is None for client in clients)


def tested(clients: Iterable[ClientResult]) -> dict[str, int]:
    """The number of test samples in the run that has the fewest, by the name of the client."""
    found: dict[str, int] = {}
    for client in clients:
        found[client.name] = min(client.test, found.get(client.name, client.test))
    return found


# Values by the client's name and the seed.
ByPlace = dict[tuple[str, str], float]


def of_method(clients: Iterable[ClientResult], method: str, column: str) -> ByPlace:
    """The values of a column in the runs of a method on one partition, where they are defined."""
    return {
        (client.name, client.run[2]): value
        for client in clients
        if client.run[1] == method and (value := client.values[column]) is not None
    }


def paired(own: ByPlace, others: ByPlace) -> dict[str, list[tuple[float, float]]]:
    """The pairs of values that both have, by the client's name."""
    return grouped((place[0], (own[place], others[place])) for place in own if place in others)


def lowest_pa(clients: Iterable[ClientResult]) -> float | None:
    """The lowest PA of the clients of a run, averaged over the runs; None where not defined."""
    values = grouped(
        (client.run, pa) for client in clients if (pa := client.values["pa"]) is not None
    )
    return tables.mean([min(found) for found in values.values()])


def several_seeds(clients: Iterable[ClientResult]) -> int:
    """Of how many seeds the clients are; 0 if runs with other seeds have the same ones."""
    names = grouped((client.run[2], client.name) for client in clients)
    every = {name for found in names.values() for name in found}
    return len(names) if any(len({*found}) < len(every) for found in names.values()) else 0


def mean_pa(clients: Iterable[ClientResult]) -> dict[str, float]:
    """PA averaged over the runs, by the name of the client; only where it is defined."""
    values = grouped(
        (client.name, pa) for client in clients if (pa := client.values["pa"]) is not None
    )
    return {name: statistics.fmean(found) for name, found in values.items()}
