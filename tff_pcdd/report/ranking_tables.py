"""The tables of a summary of several comparisons."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from tff_pcdd import tables, text
from tff_pcdd.measures import headings
from tff_pcdd.results import ranks
from tff_pcdd.tables import BASELINE

if TYPE_CHECKING:
    from tff_pcdd.report.rankings import Federation, Ranking

# The accuracies that can be ranked: the column of comparison.csv, and its name.
MEASURES = {
    **headings("ga_final", "ga_second_half"),
    "ga_at_best_round": "GA in the best round on held-out samples",
    **headings("pa_before_final", "pa_before_masked_final", "pa_final"),
}

_NOTE_ON_RANKS = """\
Accuracies in %, mean ± sample standard deviation over seeds, without runs that diverged. Rank: the
methods' ranks by these means on each federation (1 is the best), averaged over federations. Only
methods with runs on all federations are ranked. In ranks and tests, a run that diverged counts as
an accuracy of 0. PA epochs: after how many local epochs of the personal models PA is measured."""

NOTE_ON_TESTS = """\
**Units.** The question is whether the order of the methods holds on other federations too, so the
federations are what is counted: a method's difference to another one on a federation is its mean
over the seeds, whose runs share clients, cohorts, batches and initial weights. The seeds of a
federation have the same data set, and are not independent; below each table stands how alike they
are. With a single federation, its seeds are counted, and the answer holds for this federation only.
Methods that have the same accuracies in all runs are ranked once.

**Tests.** Friedman's test asks whether the average ranks could all be equal; if not, Nemenyi's
critical difference is the least difference of two average ranks that is significant. p (best),
p (FedAvg): Wilcoxon's signed-rank test of the differences to the method with the best rank, and to
FedAvg; two-sided, exact; first of the test alone, as for a question that was asked before the
results were known, then adjusted by Holm for the number of methods. The best method was selected by
the same figures, so p (best) is too small. Ahead: on how many federations the method is better than
FedAvg. The level is 0.05. Demšar, JMLR 7, 2006.

**Power.** The smallest p-value of n federations, reached by a method that is ahead on all of them,
is 2·0.5ⁿ: five cannot reach the level in a single test, seven reach 0.016, and after the correction
for 30 methods only eleven can. That differences are not significant therefore says little; their
sizes are in the tables."""


def document(federations: Sequence[Federation], rankings: Sequence[Ranking]) -> str:
    """The text of summary.md."""
    number = len(federations)
    parts = [f"# {number} federations" if number > 1 else f"# {federations[0].name}"]
    for ranking in rankings:
        table = tables.table(_lines(federations, ranking))
        parts += [f"## {MEASURES[ranking.measure]}", table, tests(ranking)]
        if ranking.lacking:
            names = ", ".join(ranking.lacking)
            parts.append(f"Without runs on all federations, and not ranked: {names}.")
    return "\n\n".join([*parts, "## What the columns mean", _NOTE_ON_RANKS, NOTE_ON_TESTS]) + "\n"


def printed(federations: Sequence[Federation], rankings: Sequence[Ranking]) -> str:
    """The rankings for a terminal: accuracies are left out where they do not fit into a line."""
    number = len(federations)
    parts = [tables.wrapped(f"{number} federations" if number > 1 else federations[0].name)]
    for ranking in rankings:
        lines = _lines(federations, ranking)
        # p (best) says less than the others, and then accuracies, the last ones first.
        dropped = [len(lines[0]) - 3, *range(1 + number, 1, -1)]
        parts += [
            MEASURES[ranking.measure],
            tables.narrow(lines, [*dropped, len(lines[0]) - 2]),
            tables.wrapped(tests(ranking)),
        ]
    return "\n\n".join(parts)


def _lines(federations: Sequence[Federation], ranking: Ranking) -> list[list[str]]:
    """The accuracies of the methods on each federation, beside their average ranks."""
    cells = [
        [federation.cell(method, ranking.measure) for federation in federations]
        for method in ranking.methods
    ]
    names = [federation.name for federation in federations]
    if ranking.measure == "pa_final":
        names.append("PA epochs")
        for method, own in zip(ranking.methods, cells, strict=True):
            epochs = {number for federation in federations for number in federation.epochs(method)}
            own.append(", ".join(map(str, sorted(epochs))) or tables.NO_VALUE)
    return beside_ranks(ranking, names, cells)


def _probability(found: ranks.Probability | None) -> str:
    if found is None:
        return tables.NO_VALUE
    return ", ".join("<0.001" if p < 0.001 else f"{p:.3f}" for p in found)


def beside_ranks(
    ranking: Ranking, federations: Sequence[str], cells: Sequence[Sequence[str]]
) -> list[list[str]]:
    """The lines of a table with a column for each federation, between average ranks and tests."""
    lines = [["method", "average rank", *federations, "p (best)", "p (FedAvg)", "ahead"]]
    for method, average, own in zip(ranking.methods, ranking.average, cells, strict=True):
        won, pairs = ranking.ahead.get(method, (0, 0))
        lines.append(
            [
                " = ".join([method, *ranking.same.get(method, ())]),
                ranks.shown(average),
                *own,
                _probability(ranking.p_best.get(method)),
                _probability(ranking.p_baseline.get(method)),
                f"{won} of {pairs}" if pairs else tables.NO_VALUE,
            ]
        )
    return lines


def tests(ranking: Ranking) -> str:
    """What the tests say, in a few sentences."""
    return " ".join([*_on_ranks(ranking), _on_pairs(ranking), *_on_seeds(ranking)])


def _on_ranks(ranking: Ranking) -> Iterator[str]:
    """What Friedman's and Nemenyi's tests say."""
    if ranking.friedman is not None:
        p = ranking.friedman.p
        differ = "differ" if p < ranks.LEVEL else "do not differ significantly"
        yield (
            f"Over federations: the average ranks {differ} (Friedman: "
            f"χ² = {ranking.friedman.statistic:.1f}, p = {p:.2g}; "
            f"{text.plural(len(ranking.methods), 'method')}, "
            f"{text.plural(len(ranking.federations), 'federation')})."
        )
    if ranking.difference is not None:
        best = ranking.methods[0]
        near = [best, _listed(ranking.near_best, ranking)] if ranking.near_best else []
        told = " and ".join(near) or f"{best} is told apart from each of the others"
        yield (
            f"Average ranks that differ by less than {ranking.difference:.1f} cannot be told apart "
            f"(Nemenyi): {told}."
        )


def _on_pairs(ranking: Ranking) -> str:
    """What Wilcoxon's test says."""
    best, level = ranking.methods[0], ranks.LEVEL
    found = ranking.p_baseline or ranking.p_best
    other, compared = BASELINE if ranking.p_baseline else best, len(found)
    needed = ranks.least_pairs(compared)
    if ranking.number < needed:
        alone = [name for name in ranking.methods if name in found and found[name].p < level]
        few = text.plural(ranking.number, ranking.units.removesuffix("s"))
        return (
            f"{few} {'is' if ranking.number == 1 else 'are'} too few for Wilcoxon's test of "
            f"{text.plural(compared, 'method')}: adjusted, it needs {needed} to reach the level of "
            f"{level:g}, whatever the accuracies are. Tested alone, "
            f"{', '.join(alone) or 'no method'} would differ from {other}."
        )
    apart = [name for name in ranking.methods if name in found and found[name].adjusted < level]
    names = ", ".join(apart) or "no method"
    return f"Adjusted, {names} differs significantly from {other} (Wilcoxon)."


def _on_seeds(ranking: Ranking) -> Iterator[str]:
    """How alike the seeds of a federation are, if that is known."""
    if alike := {name: c for name, c in ranking.alike.items() if not math.isnan(c)}:
        median = statistics.median(alike.values())
        shown = [name for name in ranking.methods if name in alike][:3]
        how = "alike" if median > 0 else "no more alike than those of different federations"
        found_alike = [
            f"Seeds of a federation are {how}: the intraclass correlation of the differences to "
            f"{BASELINE} is {', '.join(f'{alike[name]:.2f} ({name})' for name in shown)}"
        ]
        if len(alike) > 1:
            found_alike.append(f"its median over the methods is {median:.2f}")
        if min(median, *(alike[name] for name in shown)) < 0:
            found_alike.append("values below 0 are estimates of 0")
        yield f"{'; '.join(found_alike)}."


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
            "mean": statistics.fmean(values) if values else "",
            "std": tables.deviation(values) if len(values) > 1 else "",
            "rank": float(ranking.placed[line, column]),
            "average_rank": float(ranking.average[column]),
            **_columns("p_best", ranking.p_best.get(method)),
            **_columns("p_fedavg", ranking.p_baseline.get(method)),
            "diverged": federation.diverged(method),
        }
        for ranking in rankings
        for line, federation in enumerate(federations)
        for column, method in enumerate(ranking.methods)
    ]


def _columns(name: str, found: ranks.Probability | None) -> dict[str, float | None]:
    alone, adjusted = found or (None, None)
    return {name: alone, f"{name}_adjusted": adjusted}
