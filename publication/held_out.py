"""Whether held-out samples say which settings are good, measured after the choice.

A sweep chooses by held-out samples alone. Its runs are evaluated on the test set too, so a
publication can say how far the two agree; the choice was made before.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

from scipy import stats

from tff_pcdd.experiment.history import History
from tff_pcdd.tables import read_number

# The accuracies that are compared with GA, and how the page names them.
ACCURACIES = {
    "va": "the accuracy on held-out samples",
    "va_balanced": "its mean over classes",
}

# With fewer runs, a rank correlation says nothing.
_FEWEST = 10


def rows(
    trials: Sequence[Mapping[str, str]], runs: Sequence[Mapping[str, History]]
) -> list[dict[str, str]]:
    """Accuracies of all settings after the rounds that each of them was given.

    Args:
        trials: the rows of sweep.csv.
        runs: the measurements of the runs of each, by their seeds.

    Returns:
        A row for each run that got so far: the method, the settings, the seed, the round, the
        accuracies on held-out samples and GA, in %. Empty if no run did.
    """
    reached = [
        max((number for number, _ in history.points("va")), default=0)
        for trial, histories in zip(trials, runs, strict=True)
        for history in histories.values()
        if trial["diverged"] == "False"
    ]
    after = min(reached, default=0)
    found = []
    for trial, histories in zip(trials, runs, strict=True):
        for seed, history in histories.items():
            for row in history:
                if row["round"] == after and row.get("va") is not None:
                    values = {name: _text(row.get(name)) for name in (*ACCURACIES, "ga")}
                    found.append(
                        {
                            "algorithm": trial["algorithm"],
                            "settings": trial["settings"],
                            "seed": seed,
                            "round": str(after),
                            **values,
                        }
                    )
    return found


def _text(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


def described(table: Sequence[Mapping[str, str]], criterion: str) -> str:
    """A sentence on how far held-out samples and the test set agree; empty for few runs.

    Args:
        table: what `rows` returned. Methods that joined later may have been compared after another
            round; only the rows of the most frequent round count.
        criterion: the column by which settings were chosen.
    """
    rounds = [row["round"] for row in table]
    table = [row for row in table if row["round"] == statistics.mode(rounds)]
    if len(table) < _FEWEST:
        return ""
    ga = [read_number(row["ga"]) for row in table]
    agreement = []
    for column, name in ACCURACIES.items():
        values = [read_number(row[column]) for row in table]
        if None not in values and len({*values}) > 1 and len({*ga}) > 1:
            agreement.append(f"{stats.spearmanr(values, ga)[0]:.2f} for {name}")
    if not agreement:
        return ""
    text = (
        f"Rank correlation with GA after {table[0]['round']} rounds, over {len(table)} runs: "
        f"{', '.join(agreement)}"
    )
    if criterion not in ACCURACIES:
        return text
    return (
        f"{text}. To choose by {ACCURACIES[criterion]} instead of GA itself costs a method "
        f"{_loss(table, criterion):.1f} points of GA then, on average"
    )


def _loss(table: Sequence[Mapping[str, str]], criterion: str) -> float:
    """The mean over methods of the highest GA minus that of the best run by a criterion."""
    losses = []
    for method in {row["algorithm"]: None for row in table}:
        own = [row for row in table if row["algorithm"] == method]
        best = max(own, key=lambda row: float(row[criterion] or "-inf"))
        losses.append(max(float(row["ga"]) for row in own) - float(best["ga"]))
    return statistics.fmean(losses)
