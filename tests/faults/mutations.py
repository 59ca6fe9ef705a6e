"""Random changes of bytes, and what may come of them."""

from __future__ import annotations

import contextlib
import random
import warnings
from collections.abc import Iterator

from tests.faults.case import one_line
from tff_pcdd.errors import DataError, SettingError


def mutate(content: bytes, draw: random.Random) -> bytes:
    """Cuts, flips, repeats, removes or inserts bytes."""
    changed = bytearray(content)
    for _ in range(draw.choice((1, 1, 2, 5))):
        place = draw.randrange(len(changed) + 1)
        kind = draw.randrange(6)
        if kind == 0:
            del changed[place:]
        elif kind == 1 and place < len(changed):
            changed[place] ^= 1 << draw.randrange(8)
        elif kind == 2:
            changed[place:place] = changed[place : place + draw.randrange(1, 50)]
        elif kind == 3:
            del changed[place : place + draw.randrange(1, 50)]
        elif kind == 4:
            changed[place:place] = draw.randbytes(draw.randrange(1, 9))
        else:
            changed[place:place] = draw.choice((b"NaN", b"1e999", b'"', b"{", b"]", b"\0", b",,"))
    return bytes(changed)


@contextlib.contextmanager
def refusals(*names: object) -> Iterator[list[str]]:
    """Collects REFUSED if the block refuses in one line that contains the names."""
    outcomes: list[str] = []
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", RuntimeWarning)
            yield outcomes
    except (DataError, SettingError) as error:
        outcomes.append(one_line(error, *map(str, names)))
