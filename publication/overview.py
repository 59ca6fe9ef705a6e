"""The first tables of the page about published results: what to take, and how fast it learns."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from typing import NamedTuple

from publication.federation_tables import (
    SAME_TAIL,
    SAME_TAIL_HEADING,
    federation,
    has_long_tail,
    is_global,
    order,
)
from publication.published import Published
from tff_pcdd import tables
from tff_pcdd.report import rankings as summaries
from tff_pcdd.report.rankings import Federation, Ranking
from tff_pcdd.results import ranks
from tff_pcdd.tables import BASELINE

# A federation on which fewer of the methods were compared than this share does not count for ranks.
_MOST = 0.8

# A method sends as much as FedAvg up to this factor; FedETF sends one number more.
_SENT = 1.001

# The accuracy of the table of all methods.
_GA = "ga_final"

# So many of the best methods of each federation are in the table of speed.
_BEST = 3


class Need(NamedTuple):
    """What a reader may want, and how methods are ranked for it.

    Attributes:
        text: what it is.
        measure: the heading of the accuracy.
        column: its column.
        fits: whether a method can serve it; by default, every method can.
    """

    text: str
    measure: str
    column: str
    fits: Callable[[Published, str], bool] = lambda *_: True


def _is_light(published: Published, method: str) -> bool:
    """Whether clients keep nothing, and send and receive as much as under FedAvg, or less."""
    if not is_global(published, method) or any(
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


def _has_tail(published: Published, method: str) -> bool:
    """Whether there are small classes, and held-out samples with the same tail."""
    del method
    return has_long_tail(published)


NEEDS = (
    Need("one global model", "GA", "ga_final"),
    Need(
        "the same, if clients keep nothing and send as much as under FedAvg, or less",
        "GA",
        "ga_final",
        _is_light,
    ),
    Need(
        "a global model for the small classes of a long tail", "GA, few", "ga_few_final", _has_tail
    ),
    Need(
        "a global model for new data with the same long tail",
        SAME_TAIL_HEADING,
        SAME_TAIL,
        _has_tail,
    ),
    Need("personal models, without training after the last round", "PA before", "pa_before_final"),
    Need("personal models after local epochs", "PA after", "pa_final"),
)


def complete(published: Sequence[Published]) -> list[Published]:
    """The federations on which most methods were compared, so that their ranks can be averaged."""
    most = max((len(one.methods) for one in published), default=0)
    return [one for one in published if len(one.methods) >= _MOST * most]


def in_short(published: Sequence[Published]) -> str:
    """For each need, the three best methods and FedAvg, over the federations of `complete`."""
    lines = [["you want", "measure", "best", "second", "third", "FedAvg"]]
    for need in NEEDS:
        groups = [federation(one, need.fits) for one in complete(published)]
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
    return tables.table(lines)


def _place(
    ranking: Ranking, groups: Sequence[Federation], index: int, name: str | None = None
) -> str:
    """A method with its accuracy; over several federations, with average rank and accuracy."""
    method = ranking.methods[index]
    name = f"{method} " if name is None else name
    if len(groups) == 1:
        return f"{name}({groups[0].cell(method, ranking.measure)})"
    values = [group.values(method, ranking.measure).values() for group in groups]
    # On a federation where all runs of the method diverged, there is no accuracy.
    means = map(statistics.fmean, values) if all(values) else ()
    lost = sum(group.diverged(method) for group in groups)
    diverged = f", {lost} diverged" if lost else ""
    rank = ranks.shown(ranking.average[index])
    return f"{name}(rank {rank}; {tables.number(means, '.1f')}{diverged})"


def accuracies(published: Sequence[Published], rankings: Sequence[Ranking]) -> str:
    """GA of all methods that have a global model, on each federation, the best average rank first.

    Args:
        published: the federations.
        rankings: the ranks over them by each measure; without ranks by GA, methods are sorted by
            their GA on the first federation.
    """
    ranking = next((ranking for ranking in rankings if ranking.measure == _GA), None)
    ranked = [] if ranking is None else ranking.methods
    average = {} if ranking is None else dict(zip(ranked, ranking.average, strict=True))
    names = dict.fromkeys(ranked)
    for one in published:
        names |= dict.fromkeys(sorted(one.methods, key=lambda name: order(one, name)))
    kept = [
        name for name in names if all(name not in one.without_global_model for one in published)
    ]
    columns = [
        tables.mark_best({name: one.values(name, _GA) for name in kept}) for one in published
    ]
    titles = [one.title for one in published]
    lines = [["method", *(["average rank"] if average else []), *titles]]
    for name in kept:
        place = ranks.shown(average[name]) if name in average else tables.NO_VALUE
        lines.append([name, *([place] if average else []), *(column[name] for column in columns)])
    return tables.table(lines)


def speed(published: Sequence[Published]) -> str:
    """GA early and at the end, of FedAvg and of the best methods that exceed its GA somewhere.

    Early is after a fifth of the rounds, or in the last round before that of which GA is published.
    """
    names: dict[str, None] = {}
    for one in published:
        best = sorted(one.methods, key=lambda name: order(one, name))[:_BEST]
        names |= dict.fromkeys(name for name in best if order(one, name) < order(one, BASELINE))
    lines = [["method", *(f"{one.title}, round {_early(one)}" for one in published)]]
    for name in (*names, BASELINE):
        lines.append([name, *(_early_and_last(one, name) for one in published)])
    return tables.table(lines)


def _early(published: Published) -> int:
    """The round of `speed` that is early."""
    rounds = sorted({number for curve in published.curves for number, _ in curve.points}) or [0]
    return max([rounds[0], *(n for n in rounds if 5 * n <= published.record["rounds"])])


def _early_and_last(published: Published, method: str) -> str:
    curves = [dict(curve.points) for curve in published.usable_curves(method)]
    early = [curve[_early(published)] for curve in curves if _early(published) in curve]
    last = published.values(method, "ga_final")
    if not early or not last:
        return tables.NO_VALUE
    return f"{statistics.fmean(early):.1f} → {statistics.fmean(last):.1f}"
