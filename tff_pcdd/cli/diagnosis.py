"""What `tff-pcdd doctor` finds."""

from __future__ import annotations

from typing import NamedTuple

OK, OPTIONAL, WRONG = "ok", "--", "!!"


class Finding(NamedTuple):
    """What was found.

    Attributes:
        state: `OK`, `OPTIONAL` or `WRONG`.
        text: one line, with what to do unless the state is `OK`.
    """

    state: str
    text: str
