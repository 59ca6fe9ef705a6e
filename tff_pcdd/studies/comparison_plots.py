"""Pictures of a comparison. Each function returns (figure, axes).

`results` holds, for each partition and each method on it, the histories of its usable runs, and
`diverged` those of the other finished ones.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from tff_pcdd import measures
from tff_pcdd.diagnostics import pruning
from tff_pcdd.experiment.history import in_common
from tff_pcdd.results import method_traits
from tff_pcdd.tables import BASELINE, deviation
from tff_pcdd.training import History, colors, plots

Results = Mapping[str, Mapping[str, Sequence[History]]]

# With more curves than this, bands would hide one another.
_MAX_BANDS = 6

_COLUMNS_OF_PANELS = 3


def curves(results: Results, title: str, diverged: Results | None = None):
    """GA over the rounds that all seeds have measured, averaged: a panel for each partition.

    Of the methods that `method_traits.drawn` names.

    The curve of each run that diverged is dotted and ends with a cross.

    The legend of a single panel lists the methods by their last value, best first, which is the
    order in which the curves end.
    """
    names = _methods(results)
    styles = _styles(names)
    figure, panels = _panels(results, width=7.5, height=max(4.8, 0.24 * len(names)))
    last: dict[str, float] = {}
    for axes, (partition, methods) in zip(panels, results.items(), strict=True):
        for method in method_traits.drawn(methods):
            runs = methods[method]
            for run in (diverged or {}).get(partition, {}).get(method, ()):
                style = {**styles[method], "linestyle": ":", "marker": "x", "markevery": [-1]}
                label = "_" if runs else method
                axes.plot(*zip(*run.points("ga"), strict=True), label=label, **style)
            common = in_common([run.usable_points("ga") for run in runs])
            if not common:
                continue
            rounds, values = [number for number, _ in common], np.array([row for _, row in common])
            mean = values.mean(axis=1)
            last[method] = mean[-1]
            axes.plot(rounds, mean, label=method, **styles[method])
            if len(methods) <= _MAX_BANDS and len(runs) > 1:
                spread = values.std(axis=1, ddof=1)
                band = {"alpha": 0.15, "color": styles[method]["color"], "linewidth": 0}
                axes.fill_between(rounds, mean - spread, mean + spread, **band)
        plots.percent_axis(axes)
        axes.set_ylabel("GA (%)")
        _name_panel(axes, partition, results)
    handles = {
        label: handle
        for axes in panels
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)
    }
    order = [name for name in names if name in handles]
    if len(panels) == 1:
        order.sort(key=lambda name: -last.get(name, -np.inf))
    ends = {name: f"{value:.1f}" for name, value in last.items()}
    labels = [
        f"{name}  {ends.get(name, 'diverged')}" if len(panels) == 1 else name for name in order
    ]
    figure.legend([handles[name] for name in order], labels, fontsize=8, loc="outside right upper")
    explained = f"GA: accuracy on the whole test set{_several(results)}"
    if _runs(diverged or {}):
        explained += "\n×: diverged"
    figure.suptitle(f"{title}\n{explained}", fontsize=11)
    return figure, panels


def bars(results: Results, title: str, diverged: Results | None = None):
    """GA and PA after the last round: a panel for each partition, two bars for each method.

    Runs that diverged are left out, and counted beside the method's name.

    Two marks on the bar of PA show PA before any local step: over all classes, and with predictions
    restricted to the client's own classes.
    """
    height = max(2.6, 0.42 * len(_methods(results)) + 1.0)
    figure, panels = _panels(results, width=6.0, height=height)
    marks: dict[str, dict[str, Any]] = {
        # The circle is wide enough to be seen around the diamond where both are equal.
        "pa_before": {"marker": "o", "markerfacecolor": "white", "markersize": 7},
        "pa_before_masked": {"marker": "D", "markersize": 3.5},
    }
    for axes, (partition, methods) in zip(panels, results.items(), strict=True):
        positions = np.arange(len(methods))
        for column, shift in (("ga", -0.2), ("pa", 0.2)):
            mean, spread = _finals(methods, column)
            whiskers = {"capsize": 2, "ecolor": "#808080", "error_kw": {"elinewidth": 1.2}}
            whiskers["xerr"] = spread if any(each > 0 for each in spread) else None
            label, color = measures.of(column).heading, colors.of_measure(column).color
            axes.barh(positions + shift, mean, 0.4, label=label, color=color, **whiskers)
        for column, style in marks.items():
            mean, _ = _finals(methods, column)
            style = {"color": "black", "markeredgecolor": "black", "markeredgewidth": 0.8, **style}
            label = measures.of(column).heading
            axes.plot(mean, positions + 0.2, linestyle="", label=label, **style)
        lost = {name: len(runs) for name, runs in (diverged or {}).get(partition, {}).items()}
        labels = [f"{name} ({lost[name]} diverged)" if lost.get(name) else name for name in methods]
        axes.set_yticks(positions, labels, fontsize=9)
        axes.set_ylim(len(methods) - 0.4, -0.6)
        axes.set_xlim(0, 102)
        axes.set_xlabel("accuracy (%)")
        axes.grid(axis="x", alpha=0.3)
        axes.set_axisbelow(True)
        _name_panel(axes, partition, results)
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(
        handles, labels, fontsize=8, loc="outside lower center", ncol=2 if len(panels) == 1 else 4
    )
    figure.suptitle(f"{title}\nafter the last round{_several(results, 'whiskers')}", fontsize=11)
    return figure, panels


def pruning_curves(results: Results, title: str):
    """Accuracy against the share of pruned features, see `tff_pcdd.diagnostics.pruning`.

    Each method has a solid curve, for small means first, and a dashed one, for large means first.
    """
    styles = _styles(_methods(results))
    figure, panels = _panels(results, width=6.5, height=4.2)
    for axes, (partition, methods) in zip(panels, results.items(), strict=True):
        for method, line in itertools.product(methods, ("-", "--")):
            order = pruning.ORDERS[line == "--"]
            mean = [
                _finals({method: methods[method]}, f"diag_pruning_{order}_{share}")[0][0]
                for share in pruning.SHARES
            ]
            label = f"{method}, {order} means first"
            style = {**styles[method], "linestyle": line}
            axes.plot(pruning.SHARES, mean, label=label, marker=".", **style)
        axes.set_xlabel("pruned features (%)")
        axes.set_ylabel("accuracy of the global model (%)")
        axes.set_ylim(0, 100)
        axes.grid(alpha=0.3)
        _name_panel(axes, partition, results)
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, fontsize=8, loc="outside lower center", ncol=2)
    figure.suptitle(f"{title}\nafter the last round, mean over seeds", fontsize=11)
    return figure, panels


def has_pruning(results: Results) -> bool:
    """Whether the runs measured what `pruning_curves` draws."""
    column = f"diag_pruning_{pruning.ORDERS[0]}_{pruning.SHARES[0]}"
    return any(run.points(column) for run in _runs(results))


def _runs(results: Results) -> list[History]:
    return [run for methods in results.values() for group in methods.values() for run in group]


def _methods(results: Results) -> list[str]:
    return list(dict.fromkeys(name for methods in results.values() for name in methods))


def _styles(names: Sequence[str]) -> dict[str, dict]:
    """A color and line style for each method."""
    styles = {
        name: {**style.of_line(), "linewidth": 1.5}
        for name, style in colors.of_methods(names).items()
    }
    if BASELINE in styles:
        styles[BASELINE] |= {"linewidth": 2.2, "zorder": 3}
    return styles


def _panels(results: Results, width: float, height: float):
    columns = min(len(results), _COLUMNS_OF_PANELS)
    lines = math.ceil(len(results) / columns)
    figure = Figure(figsize=(width * columns + 1.5, height * lines), layout="constrained")
    panels = figure.subplots(lines, columns, squeeze=False).ravel()
    for axes in panels[len(results) :]:
        axes.remove()
    return figure, panels[: len(results)]


def _name_panel(axes, partition: str, results: Results) -> None:
    """Gives a panel its heading, unless it is the only one, which the figure's title describes."""
    if len(results) > 1:
        axes.set_title(partition, fontsize=10)


def _finals(methods, column: str):
    """Mean and sample deviation over runs of a column in the last row; NaN if it is missing."""
    lasts = [[run.column(column)[-1] for run in runs] or [None] for runs in methods.values()]
    finals = [[np.nan if value is None else value for value in values] for values in lasts]
    return [np.mean(values) for values in finals], [deviation(values) for values in finals]


def _several(results: Results, spread: str = "bands") -> str:
    """The end of a title if there are several seeds."""
    methods = list(results.values())
    if max(len(runs) for group in methods for runs in group.values()) <= 1:
        return ""
    if spread == "bands" and max(map(len, methods)) > _MAX_BANDS:
        return ", mean over seeds"
    return f", mean over seeds ({spread}: standard deviation)"
