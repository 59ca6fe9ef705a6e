"""The picture of a sweep over methods: a heat map of each method's grid."""

from __future__ import annotations

import math
from collections.abc import Sequence

import matplotlib
import numpy as np
from matplotlib.figure import Figure

from tff_pcdd.studies import sweep_plots
from tff_pcdd.studies.tuning import HOW_SCORED, Trial, Tuned, known_score

_COLUMNS_OF_PANELS = 4


def draw(tuned: Sequence[Tuned], title: str):
    """Accuracy on held-out samples at every point of every grid; returns (figure, panels).

    The best point of a method has a red frame. In a cell of a point that was stopped, the second
    line is the round after which it was.
    """
    columns = min(len(tuned), _COLUMNS_OF_PANELS)
    lines = math.ceil(len(tuned) / columns)
    in_line = [tuned[line * columns : (line + 1) * columns] for line in range(lines)]
    heights = [max(len(_axes_of(method)[0]) for method in each) for each in in_line]
    figure = Figure(
        figsize=(3.1 * columns + 0.9, 1.1 + sum(0.9 + 0.38 * height for height in heights)),
        layout="constrained",
    )
    panels = figure.subplots(
        lines, columns, squeeze=False, height_ratios=[height + 1.6 for height in heights]
    ).ravel()
    scores = [
        score
        for method in tuned
        for trial in method.trials
        if (score := known_score(trial)) is not None
    ]
    norm = matplotlib.colors.Normalize(min(scores, default=0), max(scores, default=1))
    for method, axes in zip(tuned, panels, strict=False):
        _panel(axes, method, norm)
    for axes in panels[len(tuned) :]:
        axes.remove()
    colors = matplotlib.cm.ScalarMappable(norm, sweep_plots.SHADES)
    figure.colorbar(colors, ax=list(panels[: len(tuned)]), label="VA (%)", aspect=40)
    figure.suptitle(
        f"{title}\nheld-out accuracy, {HOW_SCORED[tuned[0].scored_by]}; red: chosen; r: stopped "
        "after that round",
        fontsize=10,
    )
    return figure, panels[: len(tuned)]


def _axes_of(method: Tuned) -> tuple[list[str], list[str]]:
    """The texts down and across: the first setting of the grid is across, all others are down."""
    down, across = zip(*map(_split, method.trials), strict=True)
    return [*dict.fromkeys(down)], [*dict.fromkeys(across)]


def _split(trial: Trial) -> tuple[str, str]:
    """Where the cell of a trial is: its texts down and across."""
    first, *others = trial.point.settings.values() if trial.point.settings else ("",)
    return ", ".join(others), first


def _panel(axes, method: Tuned, norm) -> None:
    down, across = _axes_of(method)
    values = np.full((len(down), len(across)), np.nan)
    texts: dict[tuple[int, int], str] = {}
    best = None
    for trial in method.trials:
        below, beside = _split(trial)
        cell = down.index(below), across.index(beside)
        score = known_score(trial)
        values[cell] = np.nan if score is None else score
        texts[cell] = _text(trial)
        best = cell if trial is method.best else best
    sweep_plots.heat_map(axes, values, texts, best, frame=2, norm=norm, fontsize=7)
    names = list(method.trials[0].point.settings) or [""]
    axes.set_xticks(range(len(across)), across, fontsize=7)
    axes.set_yticks(range(len(down)) if any(down) else [], down if any(down) else [], fontsize=7)
    axes.set_xlabel(names[0], fontsize=7)
    axes.set_ylabel(", ".join(names[1:]).removeprefix(f"{method.method}_"), fontsize=7)
    axes.set_title(method.method, fontsize=9)


def _text(trial: Trial) -> str:
    score = known_score(trial)
    if trial.failed or trial.diverged:
        return "failed" if trial.failed else "diverged"
    value = "–" if score is None else f"{score:.1f}"
    return value if trial.active else f"{value}, r {trial.stopped}"
