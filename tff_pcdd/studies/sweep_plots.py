"""The picture of a sweep: a heat map for two settings, curves for one number, else a ranking."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import matplotlib
import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from tff_pcdd.studies.sweeps import Outcome
from tff_pcdd.tables import deviation

# VA is a small dot, which can be seen inside the hollow marks of GA and PA.
_HOLLOW = {"markerfacecolor": "white"}
_MARKS: dict[str, dict[str, Any]] = {
    "validation": {
        "label": "VA, the criterion",
        "marker": "o",
        "color": "black",
        "markersize": 4,
        "zorder": 3,
    },
    "ga": {"label": "GA in that round", "marker": "s", "color": "C0", "markersize": 8, **_HOLLOW},
    "pa": {"label": "PA in that round", "marker": "D", "color": "C1", "markersize": 6, **_HOLLOW},
}
# The colors of heat maps; gray where there is no value.
SHADES = matplotlib.colormaps["viridis"].with_extremes(bad="#eeeeee")

# From this ratio of the largest to the smallest value on, a setting has a logarithmic axis.
_LOGARITHMIC = 100


def draw(outcomes: Sequence[Outcome], best: Outcome | None, title: str):
    """Accuracy on held-out samples at every point; returns (figure, axes)."""
    settings = outcomes[0].point.settings
    if len(settings) == 2:
        return grid(outcomes, best, title)
    if len(settings) == 1 and len(outcomes) > 2 and all(map(_number, outcomes)):
        return curves(outcomes, best, title)
    return ranking(outcomes, best, title)


def _number(outcome: Outcome) -> list[float]:
    """The value of the only setting in a list, which is empty if the value is not a number."""
    (text,) = outcome.point.settings.values()
    try:
        return [float(text)]
    except ValueError:
        return []


def curves(outcomes: Sequence[Outcome], best: Outcome | None, title: str):
    """VA and the test accuracies against the only setting, a number."""
    figure = Figure(figsize=(6.5, 4.4), layout="constrained")
    axes = figure.subplots()
    ordered = sorted(outcomes, key=_number)
    values = [_number(outcome)[0] for outcome in ordered]
    for style, x, mean, spread in _marked(ordered, values):
        axes.errorbar(x, mean, yerr=spread, capsize=2, linewidth=1, **style)
    if diverged := [_number(outcome)[0] for outcome in ordered if outcome.diverged]:
        bottom = axes.get_xaxis_transform()
        zeros = [0.02] * len(diverged)
        axes.plot(diverged, zeros, "x", color="red", transform=bottom, label="runs diverged")
    if values[0] > 0 and values[-1] / values[0] >= _LOGARITHMIC:
        axes.set_xscale("log")
    if best is not None:
        axes.axvline(_number(best)[0], color="red", alpha=0.5, linewidth=2.5, zorder=0)
    axes.set_xlabel(next(iter(outcomes[0].point.settings)))
    axes.set_ylabel("accuracy (%), mean over seeds")
    axes.grid(alpha=0.3)
    figure.legend(fontsize=8, loc="outside lower center", ncol=len(_MARKS))
    figure.suptitle(f"{title}\nwhiskers: standard deviation; red: chosen value", fontsize=10)
    return figure, axes


def _marked(outcomes: Sequence[Outcome], places: Sequence[float]) -> Iterator[tuple]:
    """For each accuracy its style, and of the points that have it places, means and deviations."""
    for name, style in _MARKS.items():
        points = [
            (place, np.mean(values), deviation(values))
            for place, outcome in zip(places, outcomes, strict=True)
            if (values := getattr(outcome, name))
        ]
        if points:
            yield style, *zip(*points, strict=True)


def grid(outcomes: Sequence[Outcome], best: Outcome | None, title: str):
    """A heat map over two settings, with values in its cells and a frame around the best point."""
    first, second = outcomes[0].point.settings
    down, across = (
        list(dict.fromkeys(outcome.point.settings[flag] for outcome in outcomes))
        for flag in (first, second)
    )
    values = np.full((len(down), len(across)), np.nan)
    for outcome in outcomes:
        cell = _cell(outcome, down, across)
        values[cell] = np.mean(outcome.validation) if outcome.validation else np.nan
    figure = Figure(figsize=(3 + 0.9 * len(across), 2.2 + 0.55 * len(down)), layout="constrained")
    axes = figure.subplots()
    diverged = {_cell(outcome, down, across) for outcome in outcomes if outcome.diverged}
    texts = {}
    for cell, value in np.ndenumerate(values):
        texts[cell] = "–" if np.isnan(value) else f"{value:.1f}"
        if cell in diverged:
            texts[cell] = "diverged" if np.isnan(value) else f"{texts[cell]}\ndiverged"
    chosen = None if best is None else _cell(best, down, across)
    image = heat_map(axes, values, texts, chosen, frame=2.5)
    figure.colorbar(image, ax=axes, label="VA (%), mean over seeds")
    axes.set_xticks(range(len(across)), across)
    axes.set_yticks(range(len(down)), down)
    axes.set_xlabel(second)
    axes.set_ylabel(first)
    figure.suptitle(title, fontsize=10)
    return figure, axes


def heat_map(
    axes,
    values: np.ndarray,
    texts: Mapping[tuple[int, int], str],
    chosen: tuple[int, int] | None,
    *,
    frame: float,
    norm: matplotlib.colors.Normalize | None = None,
    fontsize: float | None = None,
):
    """Values [lines, columns], NaN in gray, with texts in their cells; returns the image.

    The chosen cell has a red frame. By default, shades go from the least to the largest value.
    """
    image = axes.imshow(np.ma.masked_invalid(values), aspect="auto", cmap=SHADES, norm=norm)
    middle = (image.norm.vmin + image.norm.vmax) / 2
    style = {"ha": "center", "va": "center", "fontsize": fontsize}
    for (line, column), text in texts.items():
        dark = not values[line, column] < middle
        axes.text(column, line, text, color="black" if dark else "white", **style)
    if chosen is not None:
        corner = chosen[1] - 0.5, chosen[0] - 0.5
        axes.add_patch(Rectangle(corner, 1, 1, fill=False, edgecolor="red", linewidth=frame))
    return image


def _cell(outcome: Outcome, down: Sequence[str], across: Sequence[str]) -> tuple[int, int]:
    first, second = outcome.point.settings.values()
    return down.index(first), across.index(second)


def ranking(outcomes: Sequence[Outcome], best: Outcome | None, title: str):
    """A line for each point, best first, with VA and the test accuracies."""
    ranked = sorted(outcomes, key=lambda outcome: -outcome.score if outcome.validation else np.inf)
    figure = Figure(figsize=(7.5, 1.8 + 0.32 * len(ranked)), layout="constrained")
    axes = figure.subplots()
    for style, lines, mean, spread in _marked(ranked, range(len(ranked))):
        axes.errorbar(mean, lines, xerr=spread, capsize=2, linestyle="", **style)
    names = [
        outcome.point.name.replace(",", ", ")
        + (f" ({outcome.diverged} diverged)" if outcome.diverged else "")
        for outcome in ranked
    ]
    axes.set_yticks(range(len(ranked)), names, fontsize=8)
    for outcome, tick in zip(ranked, axes.yaxis.get_ticklabels(), strict=True):
        tick.set_fontweight("bold" if outcome is best else "normal")
    axes.set_ylim(len(ranked) - 0.4, -0.6)
    axes.set_xlabel("accuracy (%), mean over seeds, whiskers: standard deviation")
    axes.grid(axis="x", alpha=0.3)
    figure.legend(fontsize=8, loc="outside lower center", ncol=len(_MARKS))
    figure.suptitle(title, fontsize=10)
    return figure, axes
