"""Pictures of diagnostics. Each function returns (figure, axes)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import matplotlib
import numpy as np
from matplotlib.figure import Figure

from tff_pcdd.diagnostics import geometry, pruning, tsne
from tff_pcdd.diagnostics.measurement import Diagnostics
from tff_pcdd.text import in_picture

# The rows of a history, with the columns `round` and `diag_…`.
Rows = Iterable[Mapping[str, Any]]

# Label, color and line style of each column of angles.
_ANGLES = {
    "{}": ("global model, all pairs", "black", "-"),
    "{}_min": ("global model, closest pair", "black", ":"),
    "local_{}_existing": ("local models, among existing classes", "tab:green", "-"),
    "local_{}_missing": ("local models, among missing classes", "tab:red", "-"),
    "local_{}_between": ("local models, existing to missing", "tab:orange", "-"),
}
_COLLAPSE = {
    "NC1: variability within classes": {"nc1": "trace(Σ_W Σ_B⁺) / C"},
    "NC2: class means become a simplex ETF": {
        "nc2_equinorm": "lengths: coefficient of variation",
        "nc2_equiangularity": "cosines: standard deviation",
        "nc2_maximal_angle": "cosines: distance from -1/(C-1)",
    },
    "NC3: classifier against class means": {"nc3": "distance of directions (0 to 2)"},
    "NC4: classifier against nearest class mean": {"nc4": "share of samples in disagreement"},
}


def _line(axes, rows: Rows, column: str, **style) -> bool:
    """Draws a column over the rounds; returns whether it has any values."""
    name = f"diag_{column}"
    points = [(row["round"], row[name]) for row in rows if row.get(name) is not None]
    if points:
        axes.plot(*zip(*points, strict=True), marker=".", **style)
    return bool(points)


def _say_undefined(axes) -> None:
    """Says in a panel that there is nothing to draw."""
    axes.text(0.5, 0.5, "not defined", transform=axes.transAxes, ha="center")


def _axes(axes, x: str, y: str) -> None:
    """Labels the axes of a panel, and draws its grid."""
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    axes.grid(alpha=0.3)


def _rounds_axis(axes, label: str, title: str) -> None:
    _axes(axes, "round", label)
    axes.set_title(title, fontsize=10)
    axes.xaxis.get_major_locator().set_params(integer=True)


def angle_curves(rows: Rows, num_classes: int, title: str):
    """Mean angles between classifier vectors and between class means over the rounds."""
    figure = Figure(figsize=(12, 4.8), layout="constrained")
    panels = figure.subplots(1, 2, sharey=True)
    kinds = {
        "angle_classifier": "classifier vectors",
        "angle_features": "class means of features",
    }
    for axes, (kind, name) in zip(panels, kinds.items(), strict=True):
        drawn = [
            _line(axes, rows, ending.format(kind), label=label, color=color, linestyle=style)
            for ending, (label, color, style) in _ANGLES.items()
        ]
        if not any(drawn):
            _say_undefined(axes)
        angle = geometry.simplex_angle(num_classes)
        axes.axhline(
            angle, color="tab:blue", linestyle="--", label=f"simplex ETF, {angle:.1f}°", zorder=1
        )
        _rounds_axis(axes, "angle (degrees)", name)
        axes.yaxis.set_tick_params(labelleft=True)
    panels[1].set_ylim(0, 180)
    panels[1].set_yticks(range(0, 181, 30))
    handles, labels = panels[1].get_legend_handles_labels()
    figure.legend(handles, labels, fontsize=8, loc="outside lower center", ncols=3)
    figure.suptitle(title)
    return figure, panels


def alignment_curves(rows: Rows, title: str):
    """How features lie to the columns of the classifier, over the rounds."""
    figure = Figure(figsize=(12, 3.8), layout="constrained")
    panels = figure.subplots(1, 3)
    names = {
        "own": "cosine to the column of the own class",
        "missing": "share closest to a class that the client lacks",
        "common": "squared length of the mean unit feature",
    }
    for axes, (name, label) in zip(panels, names.items(), strict=True):
        if not _line(axes, rows, f"alignment_{name}"):
            _say_undefined(axes)
        axes.set_ylim(-1.02 if name == "own" else -0.02, 1.02)
        _rounds_axis(axes, "", label)
    figure.suptitle(title)
    return figure, panels


def eigenvalue_curves(rows: Rows, eigenvalues: np.ndarray, title: str):
    """FedMR's table 7 and the effective rank over the rounds, and the last spectrum.

    Args:
        rows: the measurements of all rounds.
        eigenvalues: eigenvalues after the last round, [C, k], in descending order.
        title: the title of the figure.
    """
    figure = Figure(figsize=(14, 4.2), layout="constrained")
    variance, rank, spectrum = figure.subplots(1, 3)
    _line(variance, rows, "eigen_variance", color="tab:blue")
    variance.set_ylim(bottom=0)
    _rounds_axis(
        variance, "variance of the 50 largest eigenvalues", "standardized features (FedMR, table 7)"
    )
    _line(rank, rows, "eigen_effective_rank", color="tab:blue")
    rank.set_ylim(bottom=0)
    _rounds_axis(rank, "effective rank (Σλ)² / Σλ²", "dimensions that a class fills")
    known = eigenvalues[np.isfinite(eigenvalues).all(axis=1)]
    totals = known.sum(axis=1, keepdims=True)
    shares = 100 * known[totals[:, 0] > 0] / totals[totals[:, 0] > 0]
    if len(shares):
        # A class has at most as many nonzero eigenvalues as samples; negligible ones are left out.
        shares = shares[:, : max(int((shares.mean(axis=0) > 0.1).sum()), 1)]
        order = np.arange(1, shares.shape[1] + 1)
        spectrum.fill_between(
            order,
            shares.min(axis=0),
            shares.max(axis=0),
            alpha=0.2,
            linewidth=0,
            label="all classes",
        )
        spectrum.plot(order, shares.mean(axis=0), marker=".", label="mean over classes")
        spectrum.legend(fontsize=8)
    spectrum.set_ylim(bottom=0)
    spectrum.set_title("spectrum after the last round", fontsize=10)
    _axes(spectrum, "eigenvalue, largest first", "share of the class's variance (%)")
    figure.suptitle(title)
    return figure, (variance, rank, spectrum)


def collapse_curves(rows: Rows, title: str):
    """The measures of neural collapse over the rounds."""
    figure = Figure(figsize=(10, 7), layout="constrained")
    panels = figure.subplots(2, 2)
    for axes, (name, columns) in zip(panels.flat, _COLLAPSE.items(), strict=True):
        drawn = [_line(axes, rows, column, label=label) for column, label in columns.items()]
        low, high = axes.get_ylim()
        if name.startswith("NC1") and any(drawn) and high > 10 * max(low, 0.01):
            axes.set_yscale("log")
        else:
            axes.set_ylim(bottom=0)
        single = len(columns) == 1
        _rounds_axis(axes, next(iter(columns.values())) if single else "", name)
        if not any(drawn):
            _say_undefined(axes)
        elif not single:
            axes.legend(fontsize=8)
    figure.suptitle(f"{title}: 0 is full collapse, on test samples")
    return figure, panels


# Positions of a label beside its point.
_SIDES = (
    ((-5, 0), {"ha": "right", "va": "center"}),
    ((5, 0), {"ha": "left", "va": "center"}),
    ((0, 4), {"ha": "center", "va": "bottom"}),
    ((0, -4), {"ha": "center", "va": "top"}),
)


def norms_and_counts(
    classifiers: Mapping[str, np.ndarray],
    counts: np.ndarray,
    class_names: Sequence[str],
    title: str,
):
    """Norms of classifier columns against the classes' training samples, one point per class.

    Args:
        classifiers: [C, d] by name, "" for the main one.
        counts: training samples of each class, [C].
        class_names: labels of the points, shown for up to 30 classes.
        title: the title of the figure.
    """
    figure = Figure(figsize=(5.2 * max(len(classifiers), 1), 4.2), layout="constrained")
    panels = np.atleast_1d(figure.subplots(1, max(len(classifiers), 1)))
    for axes, (name, vectors) in zip(panels, classifiers.items(), strict=False):
        norms = geometry.norms(vectors)
        axes.scatter(counts, norms)
        if len(counts) <= 30:
            # The labels of neighboring points are on different sides.
            for place, label in enumerate(np.lexsort((norms, counts))):
                offset, sides = _SIDES[place % len(_SIDES)]
                axes.annotate(
                    in_picture(class_names[label]),
                    (counts[label], norms[label]),
                    offset,
                    textcoords="offset points",
                    fontsize=7,
                    **sides,
                )
        correlation = geometry.log_count_correlation(norms, counts)
        text = "not defined" if np.isnan(correlation) else f"{correlation:.2f}"
        heading = f"{name} head, " if name else ""
        axes.set_title(f"{heading}correlation with log counts: {text}", fontsize=10)
        _axes(axes, "training samples of the class", "norm of the class's classifier vector")
        if counts.min() > 0 and counts.max() > 5 * counts.min():
            axes.set_xscale("log")
        axes.set_ylim(0, 1.15 * norms.max() or 1)
    figure.suptitle(title)
    return figure, panels


def feature_statistics(features: np.ndarray, title: str):
    """Mean and variance of each feature, sorted."""
    each = geometry.feature_statistics(features)
    figure = Figure(figsize=(10, 4), layout="constrained")
    panels = figure.subplots(1, 2)
    for axes, name in zip(panels, ("mean", "variance"), strict=True):
        values = np.sort(getattr(each, name))[::-1]
        axes.plot(np.arange(1, len(values) + 1), values, marker=".", linewidth=0.8)
        axes.axhline(0, color="black", linewidth=0.8)
        _axes(axes, "feature, largest first", f"{name} over the test samples")
    figure.suptitle(f"{title}: {int(each.constant.sum())} of {len(each.mean)} features constant")
    return figure, panels


def pruning_curves(measured: Mapping[str, np.ndarray], title: str):
    """Accuracy of the global model against the share of pruned features, for both orders."""
    figure = Figure(figsize=(6, 4.2), layout="constrained")
    axes = figure.subplots()
    for (order, values), style in zip(measured.items(), ("-", "--"), strict=False):
        label = f"{order} means pruned first"
        axes.plot(pruning.SHARES, values, style, marker=".", label=label)
    _axes(axes, "pruned features (%)", "accuracy on test samples (%)")
    axes.set_ylim(0, 100)
    axes.legend(fontsize=8)
    figure.suptitle(title, fontsize=10)
    return figure, axes


def feature_map(points: np.ndarray, labels: np.ndarray, class_names: Sequence[str], title: str):
    """A t-SNE map of samples, colored by class.

    Args:
        points: positions of the samples, [n, 2]; points that are NaN are not drawn.
        labels: classes of the samples, int [n].
        class_names: names of the classes; up to 20 are listed beside the map.
        title: the beginning of the title of the figure.
    """
    figure = Figure(figsize=(7, 5.2), layout="constrained")
    axes = figure.subplots()
    few = len(class_names) <= 20
    colors = matplotlib.colormaps["tab10" if len(class_names) <= 10 else "tab20" if few else "hsv"]
    for label, name in enumerate(class_names):
        color = colors(label if few else label / len(class_names))
        own = points[labels == label]
        axes.scatter(
            own[:, 0], own[:, 1], s=14, alpha=0.8, linewidths=0, color=color, label=in_picture(name)
        )
    if few:
        figure.legend(loc="outside right upper", title="class", markerscale=2)
    if not np.isfinite(points).any():
        _say_undefined(axes)
    axes.set_xticks([])  # Only distances between points have a meaning, not their coordinates.
    axes.set_yticks([])
    axes.set_title(f"silhouette of the classes {tsne.silhouette(points, labels):.2f}", fontsize=10)
    figure.suptitle(f"{title}: t-SNE of the test features")
    return figure, axes


def figures(
    diagnostics: Diagnostics, rows: Rows, state: Any, class_names: Sequence[str], title: str
) -> dict[str, Figure]:
    """All pictures of a run's diagnostics, by name."""
    view = diagnostics.look(state)
    draw = {
        "angles": lambda: angle_curves(rows, view.num_classes, title),
        "alignment": lambda: alignment_curves(rows, title),
        "eigen": lambda: eigenvalue_curves(rows, view.eigenvalues, title),
        "nc": lambda: collapse_curves(rows, title),
        "norms": lambda: norms_and_counts(view.classifiers, view.class_counts, class_names, title),
        "features": lambda: feature_statistics(view.features, title),
        "pruning": lambda: pruning_curves(view.pruned or {}, title),
        "tsne": lambda: feature_map(
            tsne.project(view.mapped().features), view.mapped().labels, class_names, title
        ),
    }
    return {name: draw[name]()[0] for name in diagnostics.names}
