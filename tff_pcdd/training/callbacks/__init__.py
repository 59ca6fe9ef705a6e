"""Callbacks: hooks for what happens beside training.

Your own callback overrides the hooks that it needs:

    class PrintGA(Callback):
        def on_round(self, run, row):
            if row and row["ga"] is not None:
                print(row["round"], row["ga"])

    run_experiment(config, "runs/mine", callbacks=[PrintGA()])
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tff_pcdd.training.history import Row
    from tff_pcdd.training.run import Run


class Callback:
    """Base class of callbacks; its hooks do nothing.

    A callback may read `run.simulation`, `run.history`, `run.config`, `run.directory`, `run.label`
    and `run.last_round`, and it may call `run.stop_after(round)`.
    """

    def on_start(self, run: Run) -> None:
        """Called once, before the process computes its first round, `simulation.round + 1`.

        If the run is resumed, `run.history` already contains the earlier rounds.
        """

    def on_stage(self, run: Run, stage: str) -> None:
        """Called before each part of a round: "training", "evaluating the global model", ..."""

    def on_round(self, run: Run, row: Row | None) -> None:
        """Called after every round; `row` is its row in the history, None if there is none."""

    def on_end(self, run: Run) -> None:
        """Called when training ends, also if it fails; `run.finished` tells which."""
