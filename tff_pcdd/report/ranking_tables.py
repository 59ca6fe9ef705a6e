"""The tables of a summary of several comparisons."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import TYPE_CHECKING

from tff_pcdd import tables
from tff_pcdd.measures import headings
from tff_pcdd.results import ranks

if TYPE_CHECKING:
    from tff_pcdd.report.rankings import Federation, Ranking

# The accuracies that can be ranked: the column of comparison.csv, and its name.
MEASURES = {
    **headings("ga_final", "ga_second_half"),
    "ga_at_best_round": "GA in the best round on held-out samples",
    **headings("pa_before_final", "pa_before_masked_final", "pa_final"),
}

_NOTE_ON_RANKS = """\
Accuracies in %, mean ± sample standard deviation over seeds. Rank: the methods' ranks by these
means on each federation (1 is the best), averaged over federations. Only methods with runs on all
federations are ranked. A run that diverged counts as an accuracy of 0."""

_RANKS = """\
The methods' ranks by their mean accuracies, 1 is the best, on those federations of the
[comparison]({main}) on which most methods were compared: {federations}. Only methods with runs on
all of them are ranked, by GA only those with a global model. A run that diverged counts as an
accuracy of 0. [What GA and PA are]({main}#what-the-columns-mean); the comparison also says for how
many epochs the personal models of each method are trained."""

_NOTE_ON_TESTS = """\
The tests ask two questions. Over federations: does the order of the methods hold on other
federations too? Friedman's test asks whether the average ranks could all be equal; if not,
Nemenyi's critical difference is the least difference of two average ranks that is significant. It
needs many federations. Over pairs of runs: is a method better on these federations?
p (best), p (FedAvg): Wilcoxon's signed-rank test of the differences in accuracy to the method with
the best rank, and to FedAvg, over all pairs of runs with the same federation and seed, which share
clients, cohorts, batches and initial weights; two-sided, exact, adjusted by Holm for the number of
methods. There are more pairs than federations, so the second test finds smaller differences; where
the two disagree, a difference is there on these federations, and may not be on others. Ahead: in
how many pairs the method is better than FedAvg. The level is 0.05. Seeds of one federation have the
same data set, so pairs are not fully independent, and the best method was selected by the same
figures: small p-values are optimistic. Demšar, JMLR 7, 2006."""


def document(federations: Sequence[Federation], rankings: Sequence[Ranking]) -> str:
    """The text of summary.md."""
    number = len(federations)
    parts = [f"# {number} federations" if number > 1 else f"# {federations[0].name}"]
    for ranking in rankings:
        parts += [f"## {MEASURES[ranking.measure]}", _table(federations, ranking), tests(ranking)]
        every = dict.fromkeys(result.method for f in federations for result in f.results)
        if missing := [method for method in every if method not in ranking.methods]:
            parts.append(f"Without runs on all federations, and not ranked: {', '.join(missing)}.")
    return "\n\n".join([*parts, "## What the columns mean", _NOTE_ON_RANKS, _NOTE_ON_TESTS]) + "\n"


def ranks_document(rankings: Sequence[Ranking], main: str) -> str:
    """The text of the page about ranks, without accuracies.

    Args:
        rankings: the ranks by each measure.
        main: the path of the page about all federations, from this one.
    """
    parts = [
        "# Ranks over federations",
        _RANKS.format(main=main, federations="; ".join(rankings[0].federations)),
        _NOTE_ON_TESTS,
    ]
    for ranking in rankings:
        cells = [[f"{rank:g}" for rank in column] for column in ranking.placed.T]
        parts += [f"## {MEASURES[ranking.measure]}"]
        parts += [_beside_ranks(ranking, ranking.federations, cells), tests(ranking)]
    return "\n\n".join(parts) + "\n"


def _table(federations: Sequence[Federation], ranking: Ranking) -> str:
    """The accuracies of the methods on each federation, beside their average ranks."""
    cells = [
        [
            tables.spread([*federation.values(method, ranking.measure).values()], 1)
            for federation in federations
        ]
        for method in ranking.methods
    ]
    return _beside_ranks(ranking, [federation.name for federation in federations], cells)


def _probability(p: float | None) -> str:
    if p is None:
        return tables.NO_VALUE
    return "<0.001" if p < 0.001 else f"{p:.3f}"


def _beside_ranks(
    ranking: Ranking, federations: Sequence[str], cells: Sequence[Sequence[str]]
) -> str:
    """A table with a column for each federation, between the average ranks and the tests."""
    lines = [["method", "average rank", *federations, "p (best)", "p (FedAvg)", "ahead"]]
    for method, average, own in zip(ranking.methods, ranking.average, cells, strict=True):
        won, pairs = ranking.ahead.get(method, (0, 0))
        lines.append(
            [
                method,
                f"{average:.1f}",
                *own,
                _probability(ranking.p_best.get(method)),
                _probability(ranking.p_baseline.get(method)),
                f"{won} of {pairs}" if pairs else tables.NO_VALUE,
            ]
        )
    return tables.table(lines)


def tests(ranking: Ranking) -> str:
    """What the tests say, in a few sentences."""
    best, level = ranking.methods[0], ranks.LEVEL
    number = len(ranking.federations)
    sentences = []
    if ranking.friedman is not None:
        p = ranking.friedman.p
        differ = "differ" if p < level else "do not differ significantly"
        sentences.append(
            f"Over federations: the average ranks {differ} (Friedman: "
            f"χ² = {ranking.friedman.statistic:.1f}, p = {p:.2g}; {len(ranking.methods)} methods, "
            f"{number} federations)."
        )
    if ranking.difference is not None:
        near = [best, _listed(ranking.near_best, ranking)] if ranking.near_best else []
        told = " and ".join(near) or f"{best} is told apart from each of the others"
        sentences.append(
            f"Average ranks that differ by less than {ranking.difference:.1f} cannot be told apart "
            f"(Nemenyi): {told}."
        )
    tied = [method for method, p in ranking.p_best.items() if p >= level]
    ordered = [method for method in ranking.methods if method in tied]
    pairs, compared = ranking.pairs, len(ranking.p_best)
    if 2 * 0.5**pairs * compared >= level:
        sentences.append(
            f"Over pairs of runs: {pairs} pairs are too few for Wilcoxon's test of {compared} "
            f"methods to reach the level of {level:g}, whatever the accuracies are."
        )
    elif not ordered:
        sentences.append(
            "Over pairs of runs: the accuracies differ significantly (Wilcoxon) between "
            f"{best} and each of the others."
        )
    else:
        sentences.append(
            "Over pairs of runs: the accuracies do not differ significantly (Wilcoxon) between "
            f"{best} and {_listed(ordered, ranking)}."
        )
    return " ".join(sentences)


def _listed(names: Sequence[str], ranking: Ranking) -> str:
    """Names of methods; most of them are said by those that are left out."""
    others = [name for name in ranking.methods[1:] if name not in names]
    if not others:
        return "any other method"
    if len(names) > len(others):
        return f"all others but {', '.join(others)}"
    return ", ".join(names)


def rows(federations: Sequence[Federation], rankings: Sequence[Ranking]) -> list[dict]:
    """A row for each measure, federation and ranked method."""
    return [
        {
            "measure": ranking.measure,
            "federation": federation.name,
            "algorithm": method,
            "seeds": len(values := [*federation.values(method, ranking.measure).values()]),
            "mean": statistics.fmean(values),
            "std": tables.deviation(values),
            "rank": float(ranking.placed[line, column]),
            "average_rank": float(ranking.average[column]),
            "p_best": ranking.p_best.get(method),
            "p_fedavg": ranking.p_baseline.get(method),
        }
        for ranking in rankings
        for line, federation in enumerate(federations)
        for column, method in enumerate(ranking.methods)
    ]
