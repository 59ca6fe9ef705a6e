"""The picture of a summary: ranks of the methods over federations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from matplotlib.figure import Figure

if TYPE_CHECKING:
    from tff_pcdd.report.rankings import Ranking

_MARKERS = "osD^vP<>X"
# Not the bars' blue, nor grey, which is the color of the band.
_COLORS = ("C1", "C2", "C3", "C4", "C5", "C6", "black", "C8", "C9")


def draw(rankings: Sequence[Ranking], names: Mapping[str, str]):
    """A panel for each measure, the best method on top; returns (figure, panels)."""
    lines = max(len(ranking.methods) for ranking in rankings)
    figure = Figure(figsize=(0.6 + 4.2 * len(rankings), 2.2 + 0.26 * lines), layout="constrained")
    panels = figure.subplots(1, len(rankings), squeeze=False).ravel()
    # A picture that is grey throughout says less than a sentence.
    band = any(ranking.separates for ranking in rankings)
    for axes, ranking in zip(panels, rankings, strict=True):
        _panel(axes, ranking, band)
        axes.set_title(names[ranking.measure], fontsize=10)
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, fontsize=8, loc="outside lower center", ncol=2)
    explained = "bars: average rank; marks: rank on each federation"
    if band:
        explained += "\ngrey: not distinguishable from the best average rank (Nemenyi, 0.05)"
    elif any(ranking.difference is not None for ranking in rankings):
        explained += "\nno method is distinguishable from the best one (Nemenyi, 0.05)"
    figure.suptitle(f"Ranks of the methods, 1 is the best\n{explained}", fontsize=10)
    return figure, panels


def _panel(axes, ranking: Ranking, band: bool) -> None:
    positions = range(len(ranking.methods))
    if band and ranking.difference is not None:
        first = ranking.average[0]
        axes.axvspan(first, first + ranking.difference, color="#dddddd", zorder=0, linewidth=0)
    axes.barh(positions, ranking.average, 0.62, color="#88aacc", zorder=1)
    number = len(ranking.federations)
    for index, name in enumerate(ranking.federations):
        # Equal ranks on several federations would hide one another.
        shift = 0.5 * ((index + 0.5) / number - 0.5)
        axes.plot(
            ranking.placed[index],
            [position + shift for position in positions],
            linestyle="",
            marker=_MARKERS[index % len(_MARKERS)],
            color=_COLORS[index % len(_COLORS)],
            markeredgecolor="white",
            markeredgewidth=0.4,
            markersize=5,
            label=name,
            zorder=2,
        )
    axes.set_yticks(positions, ranking.methods, fontsize=8)
    axes.set_ylim(len(ranking.methods) - 0.4, -0.6)
    axes.set_xlim(0.5, len(ranking.methods) + 0.5)
    axes.set_xlabel("rank")
    axes.grid(axis="x", alpha=0.3)
    axes.set_axisbelow(True)
