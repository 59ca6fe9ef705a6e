"""Early stopping: ends a run when the accuracy on held-out samples no longer improves."""

from __future__ import annotations

from tff_pcdd.training.callbacks import Callback
from tff_pcdd.training.history import History


class EarlyStopping(Callback):
    """Ends a run whose validation accuracy has not improved for a number of evaluations.

    After the decision there is one more round, which is evaluated in full like the last round of
    any run. The decision depends on the history alone, so a resumed run stops in the same round.

    Args:
        patience: number of evaluations without improvement after which the run stops.
        column: the column of the history that should increase.
    """

    def __init__(self, patience: int, column: str = "va"):
        self._patience = patience
        self._column = column

    def on_start(self, run):
        self._decide(run)

    def on_round(self, run, row):
        self._decide(run)

    def _decide(self, run):
        decided_in = self.round_of_decision(run.history)
        if decided_in is not None:
            run.stop_after(decided_in + 1)

    def round_of_decision(self, history: History) -> int | None:
        """The round in which the patience ran out; None if it has not."""
        best, waited = float("-inf"), 0
        for round_number, value in history.points(self._column):
            best, waited = (value, 0) if value > best else (best, waited + 1)
            if waited >= self._patience:
                return round_number
        return None
