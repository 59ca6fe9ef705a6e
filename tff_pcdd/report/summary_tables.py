"""The tables of a summary of several comparisons."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import TYPE_CHECKING

from tff_pcdd.report import ranks
from tff_pcdd.studies import tables

if TYPE_CHECKING:
    from tff_pcdd.report.summaries import Federation, Ranking

# The accuracies that can be ranked: the column of comparison.csv, and its name.
MEASURES = {
    "ga_final": "GA",
    "ga_second_half": "GA, 2nd half",
    "ga_at_best_round": "GA in the best round on held-out samples",
    "pa_before_final": "PA before",
    "pa_before_masked_final": "PA before, own classes",
    "pa_final": "PA after",
}

_NOTE = """\
Accuracies in %, mean ± sample standard deviation over seeds. Rank: the methods' ranks by these
means on each federation (1 is the best), averaged over federations. Only methods with runs on all
federations are ranked. A run that diverged counts as an accuracy of 0.

Friedman's test asks whether the average ranks could be equal, with federations as blocks; if not,
Nemenyi's critical difference is the least difference of two average ranks that is significant.
p (best), p (FedAvg): Wilcoxon's signed-rank test of the differences to the method with the best
rank, and to FedAvg, over all pairs of runs with the same federation and seed, which share clients,
cohorts, batches and initial weights; two-sided, adjusted by Holm for the number of methods. Ahead:
in how many of these pairs the method is better than FedAvg. The level is 0.05. Seeds of one
federation have the same data set, so pairs are not fully independent, and the best method was
selected by the same figures: small p-values are optimistic. Demšar, JMLR 7, 2006."""


def document(federations: Sequence[Federation], rankings: Sequence[Ranking]) -> str:
    """The text of summary.md."""
    number = len(federations)
    parts = [f"# {number} federations" if number > 1 else f"# {federations[0].name}"]
    for ranking in rankings:
        parts += [f"## {MEASURES[ranking.measure]}", _table(federations, ranking), _tests(ranking)]
        every = dict.fromkeys(result.method for f in federations for result in f.results)
        if missing := [method for method in every if method not in ranking.methods]:
            parts.append(f"Without runs on all federations, and not ranked: {', '.join(missing)}.")
    return "\n\n".join([*parts, "## What the columns mean", _NOTE]) + "\n"


def _table(federations: Sequence[Federation], ranking: Ranking) -> str:
    names = [federation.name for federation in federations]
    lines = [["method", "average rank", *names, "p (best)", "p (FedAvg)", "ahead"]]
    for method, average in zip(ranking.methods, ranking.average, strict=True):
        won, pairs = ranking.ahead.get(method, (0, 0))
        lines.append(
            [
                method,
                f"{average:.1f}",
                *(
                    tables.spread([*federation.values(method, ranking.measure).values()], 1)
                    for federation in federations
                ),
                _probability(ranking.p_best.get(method)),
                _probability(ranking.p_baseline.get(method)),
                f"{won} of {pairs}" if pairs else tables.NO_VALUE,
            ]
        )
    return tables.markdown(lines)


def _probability(p: float | None) -> str:
    if p is None:
        return tables.NO_VALUE
    return "<0.001" if p < 0.001 else f"{p:.3f}"


def _tests(ranking: Ranking) -> str:
    """What the tests say, in a few sentences."""
    best, level = ranking.methods[0], ranks.LEVEL
    sentences = []
    if ranking.friedman is not None:
        p = ranking.friedman.p
        differ = "differ" if p < level else "do not differ significantly"
        sentences.append(
            f"Friedman: the average ranks {differ} (χ² = {ranking.friedman.statistic:.1f}, "
            f"p = {p:.2g}; {len(ranking.methods)} methods, {len(ranking.federations)} federations)."
        )
    if ranking.difference is not None:
        near = [
            method
            for method, average in zip(ranking.methods, ranking.average, strict=True)
            if method != best and average - ranking.average[0] < ranking.difference
        ]
        sentences.append(
            f"Nemenyi: the critical difference is {ranking.difference:.1f} ranks; not "
            f"distinguishable from {best} by it: {', '.join(near) or 'none'}."
        )
    tied = [method for method, p in ranking.p_best.items() if p >= level]
    ordered = [method for method in ranking.methods if method in tied]
    sentences.append(
        f"Wilcoxon: not significantly different from {best}: {', '.join(ordered) or 'none'}."
    )
    return " ".join(sentences)


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
