"""Tables and pictures of who holds what, and of which classes are taken for which."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from tff_pcdd import text
from tff_pcdd.data import new_clients
from tff_pcdd.data.federation import by_largest_class
from tff_pcdd.report import shades
from tff_pcdd.results import confusion
from tff_pcdd.results.by_client import RunClients
from tff_pcdd.results.confusion import Confusion, Mistake

# Larger ones are drawn as pictures, without numbers.
_MAX_CELLS, _MAX_COLUMNS = 1500, 40
# A picture has at most this many rows; it shows every second, third, … client of more.
_MAX_ROWS = 400
# So many names fit beside a picture.
_MAX_LABELS = 60

# How wide, and without names how high, a picture is; it is larger if it has more numbers.
_PIXELS = 800

# How many clients can be chosen; those with the lowest accuracy if there are more.
_MAX_CHOICES = 200
_MAX_MISTAKES = 8

_GLOBAL = "Global model, whole test set"


class Cell(NamedTuple):
    """A number in a table, and its shade."""

    number: int
    level: int


@dataclasses.dataclass(frozen=True)
class Grid:
    """A table of numbers with shades, or a picture of it.

    Attributes:
        rows: names and cells of the rows; empty if there is a picture.
        columns: the names of the columns.
        picture: a data URI; "" if there are rows.
        picture_width, picture_height: how large it is shown, in pixels.
        labels: the names of the picture's rows; empty if there is no room for them.
        note: what the picture leaves out.
    """

    rows: Sequence[tuple[str, Sequence[Cell]]]
    columns: Sequence[str]
    picture: str = ""
    picture_width: int = 0
    picture_height: int = 0
    labels: Sequence[str] = ()
    note: str = ""


@dataclasses.dataclass(frozen=True)
class Matrix:
    """A confusion matrix.

    Attributes:
        title: the name of the client, or of the global model.
        personal: whether it is that of a client's personal model.
        grid: the matrix.
        recalls: for each class, the share that is correct in percent; None without samples.
        mistakes: the most frequent ones.
        samples: number of test samples.
    """

    title: str
    personal: bool
    grid: Grid
    recalls: Sequence[float | None]
    mistakes: Sequence[Mistake]
    samples: int


def who_holds_what(held: RunClients) -> Grid:
    """Training samples by client and class; the clients that take no part in training come last."""
    counts, names = held.counts, [text.name_of(client.name) for client in held.clients]
    if held.new is not None:
        counts = np.concatenate([counts, held.new.counts])
        names += [new_clients.title(text.name_of(client.name)) for client in held.new.clients]
    note = ""
    if len(names) > _MAX_ROWS and not _fits(counts):
        every = -(-len(names) // _MAX_ROWS)
        order = by_largest_class(counts)[::every]
        note = (
            f"One in {every} of {len(names):,} clients, sorted by their largest class; "
            "clients.csv has all of them."
        )
        counts, names = counts[order], [names[index] for index in order]
    return _grid(counts, shades.of_counts(counts), names, held.classes, note)


def _fits(counts: np.ndarray) -> bool:
    return counts.size <= _MAX_CELLS and counts.shape[1] <= _MAX_COLUMNS


def _grid(
    counts: np.ndarray, levels: np.ndarray, names: Sequence[str], columns: Sequence[str], note=""
) -> Grid:
    if _fits(counts):
        rows = [
            (name, [Cell(*cell) for cell in zip(row.tolist(), shade.tolist(), strict=True)])
            for name, row, shade in zip(names, counts, levels, strict=True)
        ]
        return Grid(rows, columns, note=note)
    labels = names if len(names) <= _MAX_LABELS else ()
    height, width = levels.shape
    # Whole pixels for each number, and at least the height of a name.
    tall = 13 if labels else max(1, _PIXELS // height)
    wide = max(1, min(13, _PIXELS // width))
    return Grid((), columns, shades.picture(levels), width * wide, height * tall, labels, note)


def matrices(found: Confusion, held: RunClients | None) -> tuple[list[Matrix], str]:
    """The confusion matrices of the global model and of the clients, and what was left out."""
    shown = []
    if found.of_global is not None:
        shown.append(_matrix(_GLOBAL, False, found.of_global, found.classes))
    if found.of_clients is None:
        return shown, "The run saved no matrices of single clients." if shown else ""
    order = list(range(len(found.of_clients)))
    note = ""
    if len(order) > _MAX_CHOICES:
        order = _lowest(found.of_clients)
        note = (
            f"Of {text.plural(len(found.of_clients), 'client')}, the {_MAX_CHOICES} with the "
            "lowest accuracy can be chosen; confusion.npz has all of them."
        )
    for index in order:
        name = text.name_of(held.clients[index].name) if held else str(index)
        shown.append(_matrix(name, True, found.of_clients[index], found.classes))
    return shown, note


def _lowest(matrices: np.ndarray) -> list[int]:
    """The clients with the lowest accuracies, in the order of the federation."""
    totals = matrices.sum(axis=(1, 2))
    accuracies = np.trace(matrices, axis1=1, axis2=2) / np.maximum(totals, 1)
    accuracies[totals == 0] = 2
    return sorted(np.argsort(accuracies, kind="stable")[:_MAX_CHOICES].tolist())


def _matrix(title: str, personal: bool, matrix: np.ndarray, classes: Sequence[str]) -> Matrix:
    return Matrix(
        title,
        personal,
        _grid(matrix, shades.of_rows(matrix), classes, classes),
        [None if share is None else 100 * share for share in confusion.recall(matrix)],
        confusion.mistakes(matrix, classes, _MAX_MISTAKES),
        int(matrix.sum()),
    )
