"""The pages about published results: tables, tests and pictures of what `published` reads."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from publication import (
    claims,
    federation_page,
    federation_tables,
    main_page,
    overview,
    pictures,
    ranks_page,
)
from publication.published import (
    CLAIMS_PAGE,
    CURVES_PICTURE,
    PAGE,
    RANKS_PAGE,
    RANKS_PICTURE,
    Notes,
    Published,
    read,
    read_notes,
)
from tff_pcdd import files
from tff_pcdd.report import ranking_picture, ranking_tables
from tff_pcdd.report import rankings as summaries
from tff_pcdd.report.rankings import Ranking

# The accuracies by which methods are ranked; GA only among methods with a global model.
_RANKED = ("ga_final", "pa_before_final", "pa_final")


def write(publish_dir: str | os.PathLike) -> tuple[Path, list[str]]:
    """Writes the main page beside the directory of the published results, and the others into it.

    Args:
        publish_dir: the directory; the main page has its name, with the suffix .md.

    Returns:
        The main page, and a line for each failing method that lacks an explanation.

    Raises:
        SettingError: the directory does not exist.
        DamagedFileError: a file is damaged, or was changed by hand.
        WriteError: a file cannot be written.
    """
    directory = Path(publish_dir)
    notes = read_notes(directory)
    published = read(directory, notes)
    texts = documents(published, notes, directory.name)
    federations = claims.federations(published, notes)
    for one in federations:
        pictures.save(pictures.curves(one)[0], directory / one.name / CURVES_PICTURE)
    if rankings := _rankings(federations):
        named = {ranking.measure: ranking_tables.MEASURES[ranking.measure] for ranking in rankings}
        pictures.save(ranking_picture.draw(rankings, named)[0], directory / RANKS_PICTURE)
    for path, text in texts.items():
        files.write_text(directory.parent / path, text)
    return directory.parent / next(iter(texts)), missing_explanations(published, notes)


def missing_explanations(published: Sequence[Published], notes: Notes) -> list[str]:
    """A line for each method that fails on a federation, and for each table, without a text."""
    return claims.missing(notes) + [
        f"explanations.{one.name}.{method} ({reason})"
        for one in claims.federations(published, notes)
        for method, reason in federation_tables.failing(one).items()
        if method not in notes.explanations.get(one.name, {})
    ]


def documents(published: Sequence[Published], notes: Notes, folder: str) -> dict[str, str]:
    """The text of each page by its path from the main page, which comes first.

    Args:
        published: the results.
        notes: what people have written.
        folder: the name of the directory of the results, beside the main page.
    """
    federations = claims.federations(published, notes)
    rankings = _rankings(federations)
    main = f"{folder}.md"
    texts = {main: main_page.document(federations, notes, rankings, folder)}
    if rankings:
        texts[f"{folder}/{RANKS_PAGE}"] = ranks_page.document(rankings, f"../{main}")
    if notes.has_claims:
        texts[f"{folder}/{CLAIMS_PAGE}"] = claims.document(published, notes, f"../{main}")
    for one in federations:
        text = federation_page.document(one, notes, f"../../{main}")
        texts[f"{folder}/{one.name}/{PAGE}"] = text
    return texts


def _rankings(published: Sequence[Published]) -> list[Ranking]:
    """The ranks by each measure over the federations on which most methods were compared."""
    complete = overview.complete(published)
    if len(complete) < 2:
        return []
    groups = [federation_tables.federation(one) for one in complete]
    found = [summaries.rank(groups, measure) for measure in _RANKED]
    return [ranking for ranking in found if ranking is not None]
