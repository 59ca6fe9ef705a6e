"""The page about the ranks of all methods over federations."""

from __future__ import annotations

from collections.abc import Sequence

from tff_pcdd import tables
from tff_pcdd.report import ranking_tables
from tff_pcdd.report.rankings import Ranking

_RANKS = """\
The methods' ranks by their mean accuracies, 1 is the best, on those federations of the
[comparison]({main}) on which most methods were compared: {federations}. Only methods with runs on
all of them are ranked, by GA only those with a global model. A run that diverged counts as an
accuracy of 0. [What GA and PA are]({main}#what-the-columns-mean); the comparison also says for how
many epochs the personal models of each method are trained."""


def document(rankings: Sequence[Ranking], main: str) -> str:
    """The text of the page about ranks, without accuracies.

    Args:
        rankings: the ranks by each measure.
        main: the path of the page about all federations, from this one.
    """
    parts = [
        "# Ranks over federations",
        _RANKS.format(main=main, federations="; ".join(rankings[0].federations)),
        ranking_tables.NOTE_ON_TESTS,
    ]
    for ranking in rankings:
        cells = [[f"{rank:g}" for rank in column] for column in ranking.placed.T]
        parts += [f"## {ranking_tables.MEASURES[ranking.measure]}"]
        table = tables.table(ranking_tables.beside_ranks(ranking, ranking.federations, cells))
        parts += [table, ranking_tables.tests(ranking)]
    return "\n\n".join(parts) + "\n"
