"""The roofline of section `local_step`: speed of the products against operations per byte."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure

_MARKERS = {"forward": "o", "gradient of input": "s", "gradient of weights": "^"}


def draw(
    points: Mapping[str, Sequence[Mapping[str, Any]]], roofs: Mapping[int, tuple[float, float]]
) -> Figure:
    """Draws the products of several networks below the roof of the processor.

    Args:
        points: by network, rows with `kind`, `shape`, `intensity` (FLOP per byte) and `rate`
            (GFLOP/s).
        roofs: by number of threads, the most FLOP per second and bytes per second.

    Returns:
        A panel for each network; the markers of dense layers are hollow.
    """
    figure = Figure(figsize=(4.6 * len(points), 4.4), layout="constrained")
    panels = figure.subplots(1, len(points), squeeze=False, sharey=True)[0]
    for axes, (model, rows) in zip(panels, points.items(), strict=True):
        intensities = [row["intensity"] for row in rows] or [1.0]
        x = np.geomspace(min(*intensities, 2) / 2, max(*intensities, 20) * 2, 200)
        for peak, traffic in roofs.values():
            axes.plot(
                x,
                np.minimum(peak, traffic * x) / 1e9,
                color="black",
                linewidth=1,
                label=f"roof: {traffic / 1e9:.0f} GB/s, {peak / 1e9:.0f} GFLOP/s",
            )
        for kind, marker in _MARKERS.items():
            for dense in (False, True):
                chosen = [
                    row
                    for row in rows
                    if row["kind"] == kind and row["shape"].startswith("dense") == dense
                ]
                axes.scatter(
                    [row["intensity"] for row in chosen],
                    [row["rate"] for row in chosen],
                    marker=marker,
                    s=28,
                    facecolors="none" if dense else f"C{list(_MARKERS).index(kind)}",
                    edgecolors=f"C{list(_MARKERS).index(kind)}",
                    label=f"{'dense layer' if dense else 'convolution'}, {kind}",
                )
        axes.set(xscale="log", yscale="log", title=model)
        axes.set_xlabel("FLOP per byte of input and output")
        axes.xaxis.set_major_formatter("{x:g}")
        axes.yaxis.set_major_formatter("{x:g}")
        axes.grid(alpha=0.3, which="both")
    panels[0].set_ylabel("GFLOP/s")
    threads = ", ".join(map(str, roofs))
    title = f"Speed of the layers' products and the roof of the processor, threads: {threads}"
    figure.suptitle(title, fontsize=11)
    panels[-1].legend(fontsize=7, loc="lower right")
    return figure
