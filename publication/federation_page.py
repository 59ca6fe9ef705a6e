"""The page about the published results on one federation, in the folder of its files."""

from __future__ import annotations

from publication import federation_tables, provenance
from publication.published import CLAIMS_PAGE, CURVES_PICTURE, Notes, Published


def document(one: Published, notes: Notes, main: str) -> str:
    """The text of the page.

    Args:
        one: the results.
        notes: what people have written.
        main: the path of the page about all federations, from this one.
    """
    about = f"[All federations]({main}), [what the columns mean]({main}#what-the-columns-mean)"
    if notes.has_claims:
        about += f", [what the papers claim](../{CLAIMS_PAGE})"
    described = f"{notes.federations[one.name]}. " if one.name in notes.federations else ""
    parts = [
        f"# {one.title}",
        f"{described}{about}.",
        federation_tables.results(one),
        f"![GA over the rounds, a panel for each method]({CURVES_PICTURE})",
    ]
    if failing := federation_tables.failing(one):
        explained = notes.explanations.get(one.name, {})
        parts.append("## Methods that fail here")
        parts.append(
            "\n".join(
                f"- **{method}**: {reason}. {explained.get(method, 'Not explained yet.').strip()}"
                for method, reason in failing.items()
            )
        )
    parts += ["## Chosen settings", federation_tables.choices(one)]
    parts += ["## How it was computed", provenance.described(one)]
    if one.name in notes.remarks:
        parts.append(notes.remarks[one.name].strip())
    return "\n\n".join(parts) + "\n"
