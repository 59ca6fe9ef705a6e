"""Rows of the tables about claims: where their results are."""

from __future__ import annotations

import re
from typing import NamedTuple

from tff_pcdd.publication.published import Published


class Row(NamedTuple):
    """Where the results of a row are.

    Attributes:
        folder: the folder of the published sweep.
        method: the method in it.
        head: the head of the global model that GA is of; empty for the method's own.
    """

    folder: str
    method: str
    head: str

    @classmethod
    def parse(cls, text: str) -> Row:
        """The row that FOLDER/METHOD or FOLDER/METHOD/HEAD names."""
        folder, method, *heads = text.split("/")
        return cls(folder, method, "".join(heads))

    def values(self, sweep: Published, column: str) -> dict[str, float]:
        """A column by seed, without runs that diverged.

        Of another head, there are only accuracies of the global model after the last round.
        """
        if self.head:
            of_head = re.fullmatch("ga(_.*final)", column)
            column = f"ga_{self.head}{of_head[1]}" if of_head else ""
        return sweep.by_seed(self.method, column)
