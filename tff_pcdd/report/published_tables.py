"""The tables of the page about published results, in Markdown."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from tff_pcdd.report import summaries
from tff_pcdd.report.published import Published
from tff_pcdd.report.summaries import Federation, Ranking
from tff_pcdd.studies import tables

# The method with which the others are compared.
BASELINE = "fedavg"

# A method is explained if its accuracy is so many percentage points below FedAvg's, or at most this
# multiple of the accuracy of guessing.
BELOW, CHANCE = 10.0, 1.5

# A method sends as much as FedAvg up to this factor; FedETF sends one number more.
_SENT = 1.001

# So many of the best methods of each federation are in the table of speed.
_BEST = 3

# Columns of accuracies: the column of final.csv, and the heading. Those that no method has are left
# out.
_ACCURACIES = {
    "ga_final": "GA",
    "ga_many_final": "GA, many",
    "ga_medium_final": "GA, medium",
    "ga_few_final": "GA, few",
    "pa_before_final": "PA before",
    "pa_before_masked_final": "PA before, own classes",
    "pa_final": "PA after",
    "pa_many_final": "PA after, many",
    "pa_medium_final": "PA after, medium",
    "pa_few_final": "PA after, few",
}


class Need(NamedTuple):
    """What a reader may want, and how methods are ranked for it.

    Attributes:
        text: what it is.
        measure: the heading of the accuracy.
        column: its column.
        fits: whether a method can serve it.
    """

    text: str
    measure: str
    column: str
    fits: Callable[[Published, str], bool]


def _is_global(published: Published, method: str) -> bool:
    return method not in published.without_global_model


def _is_light(published: Published, method: str) -> bool:
    """Whether clients keep nothing, and send and receive as much as under FedAvg, or less."""
    if not _is_global(published, method) or any(
        published.values(method, "personal_parameters_per_client")
    ):
        return False
    pairs = [
        (published.values(method, column), published.values(BASELINE, column))
        for column in ("upload_bytes", "download_bytes")
    ]
    return all(
        own and other and statistics.fmean(own) <= _SENT * statistics.fmean(other)
        for own, other in pairs
    )


NEEDS = (
    Need("one global model", "GA", "ga_final", _is_global),
    Need(
        "the same, if clients keep nothing and send as much as under FedAvg, or less",
        "GA",
        "ga_final",
        _is_light,
    ),
    Need(
        "a global model for the small classes of a long tail", "GA, few", "ga_few_final", _is_global
    ),
    Need(
        "personal models, without training after the last round",
        "PA before",
        "pa_before_final",
        lambda *_: True,
    ),
    Need("personal models after local epochs", "PA after", "pa_final", lambda *_: True),
)


def federation(
    published: Published, fits: Callable[[Published, str], bool] = lambda *_: True
) -> Federation:
    """The results of the methods that fit, for `summaries.rank`."""
    kept = [result for result in published.results if fits(published, result.method)]
    return Federation(published.title, kept)


def in_short(published: Sequence[Published]) -> str:
    """For each need, the three best methods and FedAvg."""
    lines = [["you want", "measure", "best", "second", "third", "FedAvg"]]
    for need in NEEDS:
        groups = [federation(one, need.fits) for one in published]
        groups = [
            group
            for group in groups
            if any(group.values(result.method, need.column) for result in group.results)
        ]
        ranking = summaries.rank(groups, need.column) if groups else None
        if ranking is None:
            continue
        cells = [_place(ranking, groups, index) for index in range(min(3, len(ranking.methods)))]
        cells += [tables.NO_VALUE] * (3 - len(cells))
        index = ranking.methods.index(BASELINE) if BASELINE in ranking.methods else None
        cells.append(tables.NO_VALUE if index is None else _place(ranking, groups, index, ""))
        lines.append([need.text, need.measure, *cells])
    return tables.markdown(lines)


def _place(
    ranking: Ranking, groups: Sequence[Federation], index: int, name: str | None = None
) -> str:
    """A method with its accuracy; over several federations, with average rank and accuracy."""
    method = ranking.methods[index]
    name = f"{method} " if name is None else name
    values = [[*group.values(method, ranking.measure).values()] for group in groups]
    if len(groups) > 1:
        mean = statistics.fmean(map(statistics.fmean, values))
        return f"{name}(rank {ranking.average[index]:.1f}; {mean:.1f})"
    return f"{name}({tables.spread(values[0], 1)})"


def speed(published: Sequence[Published]) -> str:
    """GA early and at the end, of the best methods by GA on any of the federations, and of FedAvg.

    Early is after a fifth of the rounds, or in the last round before that of which GA is published.
    """
    names: dict[str, None] = {}
    for one in published:
        compared = [name for name in one.methods if _is_global(one, name) and name != BASELINE]
        names |= dict.fromkeys(sorted(compared, key=lambda name: _order(one, name))[:_BEST])
    lines = [["method", *(f"{one.title}, round {_early(one)}" for one in published)]]
    for name in (*names, BASELINE):
        lines.append([name, *(_early_and_last(one, name) for one in published)])
    return tables.markdown(lines)


def _early(published: Published) -> int:
    """The round of `speed` that is early."""
    rounds = sorted({number for curve in published.curves for number, _ in curve.points})
    return max(
        (number for number in rounds if 5 * number <= published.record["rounds"]), default=rounds[0]
    )


def _early_and_last(published: Published, method: str) -> str:
    curves = [dict(curve.points) for curve in published.curves if curve.method == method]
    early = [curve[_early(published)] for curve in curves if _early(published) in curve]
    last = published.values(method, "ga_final")
    if not early or not last:
        return tables.NO_VALUE
    return f"{statistics.fmean(early):.1f} → {statistics.fmean(last):.1f}"


def results(published: Published) -> str:
    """Accuracies and costs of all methods, the highest GA first; those without GA come last."""
    names = sorted(published.methods, key=lambda name: _order(published, name))
    lacking = published.without_global_model
    headings, columns = [], []
    for column, heading in _ACCURACIES.items():
        values = {name: published.values(name, column) for name in names}
        if any(values.values()):
            headings.append(heading)
            unranked = lacking if column.startswith("ga") else ()
            columns.append(tables.mark_best(values, unranked))
    gains = {name: _gains(published, name) for name in names}
    lines = [["method", *headings, "GA - FedAvg's", "seeds ahead", "MB", "s/round", "seeds"]]
    for name in names:
        runs = [result for result in published.results if result.method == name]
        usable = sum(not result.diverged for result in runs)
        gain = gains[name]
        ahead = f"{sum(value > 0 for value in gain)} of {len(gain)}" if gain else tables.NO_VALUE
        sent, received = (published.values(name, f"{way}_bytes") for way in ("upload", "download"))
        megabytes = [math.fsum(pair) / 1e6 for pair in zip(sent, received, strict=True)]
        lines.append(
            [
                f"{name} †" if name in lacking else name,
                *(column[name] for column in columns),
                tables.spread(gain, 1, "+"),
                ahead,
                tables.number(megabytes, ",.1f"),
                tables.number(published.values(name, "seconds_per_round"), ".3f"),
                tables.count(usable, len(runs), len(runs) - usable),
            ]
        )
    return tables.markdown(lines)


def _order(published: Published, method: str) -> tuple[bool, float]:
    lacks = method in published.without_global_model
    values = published.values(method, "pa_final" if lacks else "ga_final")
    return lacks, -statistics.fmean(values) if values else math.inf


def _gains(published: Published, method: str) -> list[float]:
    """By how much GA exceeds FedAvg's with the same seed; empty without a global model."""
    if method == BASELINE or method in published.without_global_model:
        return []
    found: dict[str, dict[str, float]] = {method: {}, BASELINE: {}}
    for result in published.results:
        value = result.values.get("ga_final")
        if result.method in found and not result.diverged and value is not None:
            found[result.method][result.seed] = value
    own, other = found[method], found[BASELINE]
    return [own[seed] - other[seed] for seed in own if seed in other]


def choices(published: Published) -> str:
    """The chosen settings of each method, and what was tried."""
    lines = [["method", "chosen settings", "VA", "at the edge", "points", "rounds"]]
    for method in published.methods:
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
    return tables.markdown(lines)


def chosen(published: Published, method: str) -> str:
    """The chosen settings of a method."""
    trials = [trial for trial in published.trials if trial["algorithm"] == method]
    return "; ".join(_shown(trial) for trial in trials if trial["chosen"] == "True")


def _shown(trial: Mapping[str, str]) -> str:
    return trial["settings"].replace(",", ", ") or "defaults"


def learning_rates(published: Sequence[Published]) -> list[str]:
    """The learning rates that were tried."""
    tried = {
        _settings(trial["settings"]).get("client_learning_rate")
        for one in published
        for trial in one.trials
    }
    return sorted((text for text in tried if text), key=float)


def _at_the_edge(chosen: Mapping[str, str], trials: Sequence[Mapping[str, str]]) -> list[str]:
    """The settings whose chosen value is the least or the greatest of several numbers."""
    found = []
    values = [_settings(trial["settings"]) for trial in trials]
    for name, text in _settings(chosen["settings"]).items():
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
    own = _settings(chosen["settings"])
    others = [
        trial["va"]
        for trial in trials
        if trial is not chosen
        and trial["rounds"] == chosen["rounds"]
        and {**_settings(trial["settings"]), name: own[name]} == own
    ]
    return bool(others) and {*others} == {chosen["va"]}


def _settings(text: str) -> dict[str, str]:
    return dict(part.split("=", 1) for part in text.split(",") if "=" in part)


def failing(published: Published) -> dict[str, str]:
    """The methods that fail after tuning, with what was measured.

    A method fails if GA is near chance or far below FedAvg's, if PA after local epochs is far below
    FedAvg's, or if a run diverged. GA of methods without a global model does not count.
    """
    found = {}
    chance = 100 / published.record["num_classes"]
    for method in published.methods:
        lines = []
        if lost := sum(r.diverged for r in published.results if r.method == method):
            lines.append(f"{lost} of its runs diverged")
        for column, heading in (("ga_final", "GA"), ("pa_final", "PA after")):
            own, other = (published.values(name, column) for name in (method, BASELINE))
            if not own or (column == "ga_final" and not _is_global(published, method)):
                continue
            mean = statistics.fmean(own)
            if column == "ga_final" and mean <= CHANCE * chance:
                lines.append(f"GA is {mean:.1f} %, and guessing gives {chance:.1f} %")
            elif other and mean < statistics.fmean(other) - BELOW:
                gap = statistics.fmean(other) - mean
                lines.append(f"{heading} is {gap:.1f} points below FedAvg's")
        if lines:
            found[method] = "; ".join(lines)
    return found
