"""Values that are NaN or infinite: they are counted, and too many in a row mark a run as diverged.

A client whose change, state or loss is not finite is excluded from the round, and a step of the
server that is not finite is not taken (`tff_pcdd.federated`). So neither the server's weights nor
the clients' states become NaN. A round is *not finite* if this happened in it, or if an answer of a
model was NaN or infinite. It is *lost* if it gave no usable model: all clients with samples were
excluded, the server's step was not taken, answers of the global model were not finite, or the loss
was beyond all measure.

A round in which every client drops out is ignored: it neither extends a row of rounds nor
interrupts it. If all clients that remain are excluded, the round counts in a row like a
lost one, but it is not lost: with the clients that dropped out it might have gone well, and the
model is still that of the round before.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

_logger = logging.getLogger(__name__)

# Rounds in a row that are not finite, or lost, after which a run has diverged.
PATIENCE = 3

# float32 does not tell larger losses apart if they differ by less than 1. A model with such a loss
# has diverged, even if a clip keeps its weights finite.
_LARGEST_LOSS = 2.0**24

# The counts that are columns of a run's history.
COUNTS = ("nonfinite_rounds", "excluded_clients", "last_lost_round")

# What may end a run, by the values of the setting `nonfinite`.
STOP, EXCLUDE = "stop", "exclude"


def is_lost(row: Mapping[str, Any]) -> bool:
    """Whether the round of a row of a history was lost; earlier versions did not record it."""
    return row.get("last_lost_round") == row["round"]


class NonfiniteLog:
    """Warns of rounds that are not finite, and decides whether a run has diverged.

    Args:
        action: `STOP` counts rounds in a row that are not finite, `EXCLUDE` those that are lost
            or count like it.
        totals: receives the counts: `nonfinite_rounds`, the number of rounds that were not finite;
            `excluded_clients`, how often clients were excluded; `last_lost_round`, the last round
            that was lost, 0 if none was; `nonfinite_in_a_row`, the number of consecutive rounds up
            to the current one that `action` counts.
    """

    def __init__(self, action: str, totals: dict[str, int]):
        self._action = action
        self._totals = totals
        totals.update(dict.fromkeys((*COUNTS, "nonfinite_in_a_row"), 0))
        # `earlier` is how many rounds before the current one were not finite.
        self._round, self.earlier, self._in_a_row = 0, 0, 0

    def begin(self, round_number: int) -> None:
        """Begins to count for a round."""
        self._round = round_number
        self.earlier = self._totals["nonfinite_rounds"]
        self._in_a_row = self._totals["nonfinite_in_a_row"]
        self._totals["nonfinite_in_a_row"] = 0

    def restore(self, round_number: int, earlier: int | None = None) -> None:
        """Continues after a round, whose counts are in the totals.

        Evaluating the round once more does not count it twice.

        Args:
            round_number: the round.
            earlier: how many rounds before it were not finite. Unknown, the round counts as not
                finite if it is one of several in a row.
        """
        rounds, in_a_row = self._totals["nonfinite_rounds"], self._totals["nonfinite_in_a_row"]
        self._round = round_number
        self.earlier = rounds - (in_a_row > 0) if earlier is None else earlier
        self._in_a_row = max(in_a_row - (rounds > self.earlier), 0)

    def all_dropped(self, clients: int) -> None:
        """Warns that all clients dropped out of the current round, which is not counted."""
        everybody = "the only client" if clients == 1 else f"all {clients} clients"
        _logger.warning(
            "round %d: %s dropped out; the server's model stays as it was", self._round, everybody
        )
        self._totals["nonfinite_in_a_row"] = self._in_a_row

    def excluded(self, clients: int, cohort_size: int, dropped: int, *, everyone: bool) -> None:
        """Counts clients that were excluded from the current round.

        Args:
            clients: number of them.
            cohort_size: number of clients that did not drop out of the round.
            dropped: number of clients that did.
            everyone: whether no client with samples is left.
        """
        left = " that did not drop out" if dropped else ""
        computed = f"what {clients} of {cohort_size} clients{left} computed is not finite"
        self.note(f"{computed}; they are excluded", lost=everyone and not dropped, counts=everyone)
        self._totals["excluded_clients"] += clients

    def note(self, what: str, *, lost: bool, counts: bool = False) -> None:
        """Counts the current round as one that is not finite or has diverged, and warns.

        Args:
            what: a sentence that says what is wrong.
            lost: whether the round gave no usable model for this reason.
            counts: whether it counts in a row like a lost one, even if it is not.
        """
        _logger.warning("round %d: %s", self._round, what)
        self._totals["nonfinite_rounds"] = self.earlier + 1
        if lost:
            self._totals["last_lost_round"] = self._round
        if lost or counts or self._action == STOP:
            self._totals["nonfinite_in_a_row"] = self._in_a_row + 1

    def check_loss(self, loss: float) -> None:
        """Counts the current round as lost if the mean training loss is far too large."""
        if loss > _LARGEST_LOSS:
            self.note(f"the training loss is {loss:.3g}", lost=True)

    @property
    def hopeless(self) -> bool:
        """Whether the run should end, after `PATIENCE` such rounds in a row."""
        return self._totals["nonfinite_in_a_row"] >= PATIENCE

    @property
    def diverged(self) -> bool:
        """Whether the current state is that of a diverged run: hopeless, or after a lost round."""
        return self.hopeless or 0 < self._round == self._totals["last_lost_round"]
