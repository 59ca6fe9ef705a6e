"""What the runs of a point of a grid have measured, and its cells in tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tff_pcdd import measures, tables
from tff_pcdd.results.run_results import Results


def keys(criterion: str) -> list[str]:
    """The values of a run that decide about a point, and that are shown beside them."""
    measure = measures.of(criterion)
    there = measure.best_round
    return [measure.best, there, f"ga_at_{there}", f"pa_at_{there}"]


def measured(runs: Results, criterion: str) -> list[list[Any]]:
    """The accuracy that decides, its best rounds, and GA and PA in them, where they are known."""
    return [[*runs.by_seed(key).values()] for key in keys(criterion)]


def cells(
    found: Sequence[Sequence[float]], seeds: int, diverged: int
) -> list[tuple[str, float | None]]:
    """The cells of a point, with the numbers by which they are sorted.

    Example:
        >>> cells([[50.0], [3], [], [99.0]], 2, 1)
        [('50.0', 50.0), ('3', 3.0), ('–', None), ('99.0', 99.0), ('1 of 2, 1 diverged', 1)]
    """
    usable = len(found[0])
    forms = (_accuracy, tables.rounds, _accuracy, _accuracy)
    shown = [(form(own), tables.mean(own)) for form, own in zip(forms, found, strict=True)]
    return [*shown, (tables.count(usable, seeds, diverged), usable)]


def _accuracy(values: Sequence[float]) -> str:
    return tables.spread(values, 1)
