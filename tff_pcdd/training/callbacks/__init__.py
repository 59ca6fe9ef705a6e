"""What happens beside training: callbacks with three hooks.

A callback of your own overrides the hooks that it needs:

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
    """Does nothing at every hook.

    What a callback may read: `run.simulation`, `run.history`, `run.config`, `run.directory`,
    `run.label` and `run.last_round`. It may call `run.stop_after(round)`.
    """

    def on_start(self, run: Run) -> None:
        """Called before the first round that this process computes, round `simulation.round + 1`.

        Earlier rounds are in `run.history` already.
        """

    def on_round(self, run: Run, row: Row | None) -> None:
        """Called after every round; `row` holds its measurements, None if nothing was evaluated."""

    def on_end(self, run: Run) -> None:
        """Called when training ends, also if it fails; `run.finished` tells whether it is done."""
