"""The tables of the page about published results, in Markdown."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence

from publication.published import Published
from tff_pcdd import tables
from tff_pcdd.findings import read_point
from tff_pcdd.measures import headings
from tff_pcdd.report.rankings import Federation
from tff_pcdd.results.run_results import Results
from tff_pcdd.tables import BASELINE, label

# A method is explained if its accuracy is so many percentage points below FedAvg's, or at most this
# multiple of the accuracy of guessing.
BELOW, CHANCE = 10.0, 1.5

# The accuracy on held-out samples, whose classes differ in size as in the training samples.
SAME_TAIL, SAME_TAIL_HEADING = "va_best", "GA, same tail (best round)"

# Columns of accuracies; those that no method has are left out.
_ACCURACIES = {
    **headings("ga_final", "ga_many_final", "ga_medium_final", "ga_few_final"),
    SAME_TAIL: SAME_TAIL_HEADING,
    **headings("pa_before_final", "pa_before_masked_final"),
    **headings("pa_final", "pa_many_final", "pa_medium_final", "pa_few_final"),
}


def is_global(published: Published, method: str) -> bool:
    """Whether a method has a global model."""
    return method not in published.without_global_model


def has_long_tail(published: Published) -> bool:
    """Whether the training samples were drawn with a long tail, which the test set lacks."""
    return published.record["settings"].get("imbalance_factor") is not None


def federation(
    published: Published, fits: Callable[[Published, str], bool] = lambda *_: True
) -> Federation:
    """The results of the methods that fit, for `summaries.rank`."""
    kept = [result for result in published.results if fits(published, result.method)]
    return Federation(published.title, Results(kept), published.without_global_model)


def results(published: Published) -> str:
    """Accuracies and costs of all methods, the highest GA first; those without GA come last."""
    names = sorted(published.methods, key=lambda name: order(published, name))
    lacking = published.without_global_model
    titles, columns = [], []
    for column, heading in _ACCURACIES.items():
        values = {name: published.values(name, column) for name in names}
        if any(values.values()) and (column != SAME_TAIL or has_long_tail(published)):
            titles.append(heading)
            unranked = lacking if column.startswith(("ga", "va")) else ()
            columns.append(tables.mark_best(values, unranked))
    gains = {name: _gains(published, name) for name in names}
    lines = [["method", *titles, "GA - FedAvg's", "seeds ahead", "MB", "s/round", "seeds"]]
    for name in names:
        runs = [result for result in published.results if result.method == name]
        usable = sum(not result.diverged for result in runs)
        gain = gains[name]
        ahead = f"{sum(value > 0 for value in gain)} of {len(gain)}" if gain else tables.NO_VALUE
        sent, received = (published.values(name, f"{way}_bytes") for way in ("upload", "download"))
        megabytes = [math.fsum(pair) / 1e6 for pair in zip(sent, received, strict=True)]
        lines.append(
            [
                label(name, name not in lacking),
                *(column[name] for column in columns),
                tables.spread(gain, 1, "+"),
                ahead,
                tables.number(megabytes, ",.1f"),
                tables.number(published.values(name, "seconds_per_round"), ".3f"),
                tables.count(usable, len(runs), len(runs) - usable),
            ]
        )
    return tables.table(lines)


def order(published: Published, method: str) -> tuple[bool, float]:
    """A key by which methods are sorted: the highest GA first, those without GA last."""
    lacks = method in published.without_global_model
    values = published.values(method, "pa_final" if lacks else "ga_final")
    return lacks, -statistics.fmean(values) if values else math.inf


def _gains(published: Published, method: str) -> list[float]:
    """By how much GA exceeds FedAvg's with the same seed; empty without a global model."""
    if method == BASELINE or method in published.without_global_model:
        return []
    own, others = (published.by_seed(name, "ga_final") for name in (method, BASELINE))
    return tables.differences(own, others)


def choices(published: Published) -> str:
    """The chosen settings of each method, and what was tried."""
    lines = [["method", "chosen settings", "VA", "at the edge", "points", "rounds"]]
    for method in sorted(published.methods):
        trials = [trial for trial in published.trials if trial["algorithm"] == method]
        for chosen in (trial for trial in trials if trial["chosen"] == "True"):
            lines.append(
                [
                    method,
                    _shown(chosen),
                    f"{float(chosen['va']):.1f}",
                    ", ".join(_at_the_edge(chosen, trials)) or "",
                    str(len(trials)),
                    f"{sum(int(trial['rounds']) for trial in trials):,}",
                ]
            )
    return tables.table(lines)


def chosen(published: Published, method: str) -> str:
    """The chosen settings of a method."""
    trials = [trial for trial in published.trials if trial["algorithm"] == method]
    return "; ".join(_shown(trial) for trial in trials if trial["chosen"] == "True")


def _shown(trial: Mapping[str, str]) -> str:
    return trial["settings"].replace(",", ", ") or "defaults"


def _at_the_edge(chosen: Mapping[str, str], trials: Sequence[Mapping[str, str]]) -> list[str]:
    """The settings whose chosen value is the least or the greatest of several numbers."""
    found = []
    values = [read_point(trial["settings"]) for trial in trials]
    for name, text in read_point(chosen["settings"]).items():
        try:
            tried = sorted({float(point[name]) for point in values if name in point})
        except ValueError:
            continue
        at_edge = len(tried) > 1 and float(text) in (tried[0], tried[-1])
        if at_edge and not _is_without_effect(name, chosen, trials):
            found.append(name)
    return found


def _is_without_effect(
    name: str, chosen: Mapping[str, str], trials: Sequence[Mapping[str, str]]
) -> bool:
    """Whether other values of a setting, with all else as chosen, have the same accuracy.

    Points that were stopped earlier do not count: which of several equal ones goes on is arbitrary.
    """
    own = read_point(chosen["settings"])
    others = [
        trial["va"]
        for trial in trials
        if trial is not chosen
        and trial["rounds"] == chosen["rounds"]
        and {**read_point(trial["settings"]), name: own[name]} == own
    ]
    return bool(others) and {*others} == {chosen["va"]}


def failing(published: Published) -> dict[str, str]:
    """The methods that fail after tuning, with what was measured.

    A method fails if GA is near chance or far below FedAvg's, if PA after local epochs is far below
    FedAvg's, or if a run diverged. GA of methods without a global model does not count. Without a
    published number of classes, chance is not known, and GA is not compared with it.
    """
    found = {}
    number = published.record["num_classes"]
    chance = 100 / number if number else None
    for method in published.methods:
        lines = []
        if lost := sum(r.diverged for r in published.results if r.method == method):
            lines.append(f"{lost} of its runs diverged")
        for column, heading in (("ga_final", "GA"), ("pa_final", "PA after")):
            own, other = (published.values(name, column) for name in (method, BASELINE))
            if not own or (column == "ga_final" and not is_global(published, method)):
                continue
            mean = statistics.fmean(own)
            if column == "ga_final" and chance is not None and mean <= CHANCE * chance:
                lines.append(f"GA is {mean:.1f} %, and guessing gives {chance:.1f} %")
            elif other and mean < statistics.fmean(other) - BELOW:
                gap = statistics.fmean(other) - mean
                lines.append(f"{heading} is {gap:.1f} points below FedAvg's")
        if lines:
            found[method] = "; ".join(lines)
    return found
