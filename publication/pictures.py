"""The pictures of the page about published results. Each function returns (figure, panels)."""

from __future__ import annotations

import io
import math
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import PIL.Image
from matplotlib.figure import Figure

from publication.published import Published
from tff_pcdd import files
from tff_pcdd.experiment.history import in_common
from tff_pcdd.tables import BASELINE, label

_COLUMNS = 6

# The colors of a file, whose few lines and greys need no more; it is then a third as large.
_COLORS = 64


def save(figure: Figure, path: Path) -> None:
    """Writes a figure as a small PNG for a repository.

    Raises:
        WriteError: it cannot be written.
    """
    drawn = io.BytesIO()
    figure.savefig(drawn, format="png", dpi=110, bbox_inches="tight")
    picture = PIL.Image.open(drawn).convert("RGB").quantize(_COLORS, dither=PIL.Image.Dither.NONE)
    small = io.BytesIO()
    picture.save(small, format="png", optimize=True)
    files.make_directory(path.parent)
    files.write_atomically(path, lambda file: file.write(small.getvalue()))


def curves(published: Published):
    """GA over the rounds: a panel for each method, the best one first, with FedAvg in grey.

    A line is the mean over seeds, and its band reaches from the lowest to the highest.
    """
    means = {
        method: band
        for method in published.methods
        if (band := _band(published, method)) is not None
    }
    lacking = published.without_global_model
    last = {method: published.results.of(method=method).mean("ga_final") or 0.0 for method in means}
    order = sorted(means, key=lambda name: (name in lacking, -last[name]))
    columns = min(_COLUMNS, len(order))
    lines = math.ceil(len(order) / columns)
    figure = Figure(figsize=(2.05 * columns, 0.7 + 1.5 * lines), layout="constrained")
    panels = figure.subplots(lines, columns, sharex=True, sharey=True, squeeze=False).ravel()
    for axes, method in zip(panels, order, strict=False):
        _panel(axes, method, means)
        name = label(method, method not in lacking)
        axes.set_title(f"{name}  {last[method]:.1f}", fontsize=8)
    for index, axes in enumerate(panels):
        if index >= len(order):
            axes.remove()
        elif index + columns >= len(order):
            # The panel below may have been removed, and with it the labels of this column.
            axes.tick_params(labelbottom=True)
    figure.supxlabel("round", fontsize=9)
    figure.supylabel("GA (%)", fontsize=9)
    title = f"{published.title}: GA over the rounds, mean over seeds and range"
    title += "\nafter the name: GA after the last round; grey: FedAvg"
    if any(method in lacking for method in order):
        title += "; †: mean of the personal models"
    figure.suptitle(title, fontsize=10)
    return figure, panels[: len(order)]


def _band(
    published: Published, method: str
) -> tuple[list[int], np.ndarray, np.ndarray, np.ndarray] | None:
    """Rounds, mean, lowest and highest GA of the usable runs; None without any."""
    common = in_common([curve.points for curve in published.usable_curves(method)])
    if not common:
        return None
    rounds = [n for n, _ in common]
    mean, low, high = ([f(row) for _, row in common] for f in (statistics.fmean, min, max))
    return rounds, np.array(mean), np.array(low), np.array(high)


def _panel(axes, method: str, bands: Mapping[str, Sequence]) -> None:
    if BASELINE in bands:
        rounds, mean, *_ = bands[BASELINE]
        axes.plot(rounds, mean, color="#999999", linewidth=1.2)
    color = "#999999" if method == BASELINE else "C0"
    rounds, mean, low, high = bands[method]
    axes.fill_between(rounds, low, high, color=color, alpha=0.25, linewidth=0)
    if method != BASELINE:
        axes.plot(rounds, mean, color=color, linewidth=1.4)
    axes.set_ylim(0, 100)
    axes.set_yticks([0, 50, 100])
    axes.tick_params(labelsize=7)
    axes.grid(alpha=0.3)
