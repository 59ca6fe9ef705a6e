"""Final and best accuracies of a run: pure functions of its history."""

from __future__ import annotations

import statistics
from typing import Any

from tff_pcdd.training.history import History

# Prefixes of the names of accuracies: global, personal, validation.
_TEST, _ACCURACIES = ("ga", "pa"), ("ga", "pa", "va")


def summarize_accuracies(history: History) -> dict[str, Any]:
    """The final and the best value of every accuracy.

    The best value of a column is its maximum over all evaluated rounds; different columns may reach
    it in different rounds. It cannot serve as a result, because it is chosen on the test set.

    Args:
        history: the history of a run with at least one evaluated round.

    Returns:
        `NAME_final` and `NAME_best` for every accuracy NAME, and `ga_second_half`, the mean GA over
        the second half of the rounds; with held-out samples also the round that is best on them,
        and the test accuracies in that round. Values that were not measured are None.
    """
    last = history[-1]
    summary: dict[str, Any] = {}
    for name in history.columns:
        if name.startswith(_ACCURACIES):
            summary[f"{name}_final"] = last[name]
            summary[f"{name}_best"] = max(
                (value for _, value in history.points(name)), default=None
            )
    for name in ("ga_many", "ga_medium", "ga_few", "pa_many", "pa_medium", "pa_few"):
        if f"{name}_final" in summary:
            summary[name] = summary[f"{name}_final"]
    half = last["round"] / 2
    second_half = [value for number, value in history.points("ga") if number > half]
    summary["ga_second_half"] = statistics.fmean(second_half) if second_half else None
    summary |= _at_best_round(history, "va", "best_round")
    return summary | _at_best_round(history, "va_personal", "best_personal_round")


def _at_best_round(history: History, column: str, name: str) -> dict[str, Any]:
    """The first round with the best value of a column, and the test accuracies in it."""
    measured = [row for row in history if row.get(column) is not None]
    if not measured:
        return {}
    best = max(measured, key=lambda row: row[column])
    tested = [key for key in best if key.startswith(_TEST)]
    return {name: best["round"], **{f"{key}_at_{name}": best[key] for key in tested}}


def typical_seconds(history: History) -> float:
    """The median time of a round in seconds; the first, which includes tracing, does not count."""
    seconds = history.column("seconds")
    return statistics.median(seconds[1:] or seconds)
