"""Checkpoints during a run."""

from __future__ import annotations

from tff_pcdd.training.callbacks import Callback
from tff_pcdd.training.checkpoints import Checkpoint, CheckpointManager


class SaveCheckpoints(Callback):
    """Saves a checkpoint every few rounds, and after the last one.

    Args:
        manager: writes the checkpoints.
        every: rounds between two checkpoints.
    """

    def __init__(self, manager: CheckpointManager, every: int):
        self._manager = manager
        self._every = every

    def on_round(self, run, row):
        simulation = run.simulation
        if run.is_due(self._every):
            checkpoint = Checkpoint(
                simulation.round, simulation.state, simulation.totals, run.history.text()
            )
            self._manager.save(checkpoint, simulation.store)
