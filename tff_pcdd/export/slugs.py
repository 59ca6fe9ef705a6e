"""Names of clients in folders and URLs."""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Sequence

# Letters that have no decomposition into an ASCII letter and an accent.
_LETTERS = str.maketrans(
    {"ß": "ss", "æ": "ae", "Æ": "Ae", "œ": "oe", "Œ": "Oe", "ø": "o", "Ø": "O", "ł": "l", "Ł": "L"}
)


def slugs(client_ids: Sequence[str]) -> list[str]:
    """A short name for each client, of ASCII letters, digits, dots, underscores and dashes.

    Ids that are such names are kept. Names that would be equal, also if upper and lower case are
    not told apart, as on some disks, end with a number.

    Example:
        >>> slugs(["St. Mary", "Charité Campus West", "7", "st mary"])
        ['st-mary', 'charite-campus-west', '7', 'st-mary-2']
    """
    made = [_slug(client_id) for client_id in client_ids]
    taken: set[str] = set()
    chosen = [""] * len(made)
    # Ids that are such names come first, so that their names do not depend on the other clients;
    # of those that differ in case only, the first one.
    such = [index for index, name in enumerate(made) if name == client_ids[index]]
    kept = {made[index].casefold(): index for index in reversed(such)}
    for index in dict.fromkeys([*kept.values(), *such, *range(len(made))]):
        name, number = made[index], 1
        while name.casefold() in taken:
            number += 1
            name = f"{made[index]}-{number}"
        taken.add(name.casefold())
        chosen[index] = name
    return chosen


def without_accents(text: str) -> str:
    """Text in which ASCII letters replace those that differ from them by an accent or the like."""
    decomposed = unicodedata.normalize("NFKD", text.translate(_LETTERS))
    return "".join(c for c in decomposed if not unicodedata.combining(c))


def _slug(client_id: str) -> str:
    if re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,99}", client_id):
        return client_id
    words = re.findall(r"[a-z0-9]+", without_accents(client_id).lower())
    # Names in other scripts have no letters left that could tell them apart.
    digest = hashlib.sha256(client_id.encode(errors="surrogatepass")).hexdigest()[:8]
    return "-".join(words)[:60].strip("-") or f"client-{digest}"
