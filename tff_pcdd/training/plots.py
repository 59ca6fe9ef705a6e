"""Pictures of runs. Each function returns (figure, axes), for a notebook to continue with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import matplotlib
import numpy as np
from matplotlib.colors import LogNorm, Normalize
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator

from tff_pcdd import files, measures, text
from tff_pcdd.data.federation import by_largest_class
from tff_pcdd.experiment.history import History
from tff_pcdd.experiment.nonfinite import is_lost
from tff_pcdd.training import colors

if TYPE_CHECKING:
    from tff_pcdd.evaluation.calibration import Calibration

# The curves of a run.
_CURVES = ("ga", "pa", "pa_before", "pa_before_masked")

# With more points than this, dots would merge into a band.
_MAX_DOTS = 40
# A heat map has room for this many clients, with one or two rows of pixels each.
_MAX_LINES = 500

# Colors become logarithmic if the largest count exceeds the median by more than this factor.
_WIDE = 8


def save(figure: Figure, path: Path) -> None:
    """Writes a figure as PNG, and creates the folder if necessary."""
    files.make_directory(path.parent)
    files.write_atomically(
        path, lambda file: figure.savefig(file, format="png", dpi=120, bbox_inches="tight")
    )


def percent_axis(axes) -> None:
    """Labels the axes: rounds on the x axis, accuracy in percent on the y axis."""
    axes.set_xlabel("round")
    axes.set_ylabel("accuracy (%)")
    axes.set_ylim(0, 101)
    axes.grid(alpha=0.3)
    axes.xaxis.get_major_locator().set_params(integer=True, min_n_ticks=1)


def accuracy_curves(history: History, title: str, *, has_global_model: bool = True):
    """GA and PA over the rounds of one run, whose method may have no global model."""
    figure = Figure(figsize=(7, 4.2))
    axes = figure.subplots()
    for measure in map(measures.of, _CURVES):
        if not has_global_model:
            measure = measures.without_global_model(measure)
        points = history.points(measure.name)
        if points:
            style = colors.of_measure(measure.name).of_line()
            marker = "." if len(points) <= _MAX_DOTS else ""
            axes.plot(*zip(*points, strict=True), marker=marker, label=measure.label, **style)
    if lost := [row["round"] for row in history if is_lost(row)]:
        label = "round without a usable model"
        axes.plot(lost, [0] * len(lost), "x", color="red", clip_on=False, label=label)
    percent_axis(axes)
    axes.set_title(title)
    # Below the axes, because a legend inside them could hide a curve.
    axes.legend(fontsize=8, loc="upper center", bbox_to_anchor=(0.5, -0.14))
    return figure, axes


def reliability(models: Mapping[str, Calibration], title: str):
    """Accuracy by confidence for each model, as it is and with its temperature."""
    figure = Figure(figsize=(4.4 * len(models), 4.4))
    all_axes = figure.subplots(1, len(models), squeeze=False)[0]
    for axes, (name, of) in zip(all_axes, models.items(), strict=True):
        axes.plot([0, 100], [0, 100], color="grey", linewidth=1)
        drawn = [("as it is", of.before)]
        if not np.array_equal(of.before.confidence, of.after.confidence):
            drawn.append(("with temperature", of.after))
        for label, answers in drawn:
            held = answers.samples > 0
            x, y = (
                100 * v[held] / answers.samples[held] for v in (answers.confidence, answers.correct)
            )
            sizes = 15 + 150 * answers.samples[held] / answers.samples.sum()
            (line,) = axes.plot(x, y, label=f"{label}: ECE {answers.error:.1f} %")
            axes.scatter(x, y, sizes, color=line.get_color(), alpha=0.6)
        axes.set_title(f"{name} model" + "s" * (name == "personal"))
        axes.set_xlabel("confidence (%)")
        axes.set_ylabel("accuracy (%)")
        axes.set_xlim(0, 103)
        axes.set_ylim(0, 103)
        axes.grid(alpha=0.3)
        axes.legend(fontsize=8, loc="lower right")
    figure.suptitle(title)
    figure.tight_layout()
    return figure, all_axes


def class_counts(
    counts: np.ndarray,
    class_names: Sequence[str],
    title: str,
    client_names: Sequence[str] | None = None,
):
    """A heat map of the numbers of training samples by client and class, [K, C].

    Small maps also show the numbers in their cells. If there are more clients than rows in the
    picture, they are sorted by their largest class, and only every second, third, … is shown. If
    the counts differ widely, the color scale is logarithmic; otherwise all but the largest counts
    would look the same.

    Args:
        counts: the numbers.
        class_names: the names of the classes.
        title: the title of the figure.
        client_names: the names of the clients; by default, their numbers from 0 on. More than 40
            are not shown.
    """
    every = -(-len(counts) // _MAX_LINES)
    all_clients = len(counts)
    if every > 1:
        counts = counts[by_largest_class(counts)][::every]
    num_clients, num_classes = counts.shape
    figure = Figure(figsize=(min(2.5 + 0.5 * num_classes, 14), min(2.0 + 0.32 * num_clients, 12)))
    axes = figure.subplots()
    held = np.ma.masked_equal(counts, 0)
    norm = _color_norm(held)
    # Darker means more. The light end is yellow, which differs from the grey of empty cells.
    colormap = matplotlib.colormaps["viridis_r"].with_extremes(bad="#e4e4e4")
    image = axes.imshow(
        held,
        aspect="auto",
        cmap=colormap,
        norm=norm,
        interpolation="nearest",
        extent=(-0.5, num_classes - 0.5, (num_clients - 0.5) * every, -0.5 * every),
    )
    bar = figure.colorbar(image, ax=axes, label="training samples (grey: none)")
    if isinstance(norm, LogNorm):
        bar.ax.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        bar.ax.yaxis.set_major_formatter("{x:g}")
        bar.ax.minorticks_off()
    axes.set_xlabel("class")
    axes.set_ylabel(
        "client"
        if every == 1
        else f"clients, sorted by their largest class (one in {every} of {all_clients})"
    )
    axes.set_title(title)
    if num_classes <= 30:
        rotation = 45 if max(map(len, class_names)) > 3 else 0
        alignment = "right" if rotation else "center"
        shown = [*map(text.in_picture, class_names)]
        axes.set_xticks(range(num_classes), shown, rotation=rotation, ha=alignment)
    if num_clients <= 40:
        names = client_names or range(num_clients)
        axes.set_yticks(range(num_clients), [*map(text.in_picture, names)])
    if num_clients * num_classes <= 400 and num_clients <= 30:
        for client, label in np.argwhere(counts > 0):
            axes.text(
                label,
                client,
                str(counts[client, label]),
                ha="center",
                va="center",
                fontsize=7,
                color="white" if norm(counts[client, label]) > 0.5 else "black",
            )
    return figure, axes


def _color_norm(counts: np.ma.MaskedArray) -> Normalize:
    """A linear color scale, or a logarithmic one if counts differ widely; zeros are masked."""
    held = counts.compressed()
    if held.size and held.max() > _WIDE * np.median(held):
        return LogNorm(1, held.max())
    return Normalize(0, held.max(initial=1))
