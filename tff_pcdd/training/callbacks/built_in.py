"""The callbacks of a run in a directory, in their order."""

from __future__ import annotations

from collections.abc import Sequence

from tff_pcdd.training.callbacks import Callback, tracking
from tff_pcdd.training.callbacks.checkpoints import SaveCheckpoints
from tff_pcdd.training.callbacks.csv_log import CsvLog
from tff_pcdd.training.callbacks.early_stopping import EarlyStopping
from tff_pcdd.training.callbacks.pictures import Pictures
from tff_pcdd.training.callbacks.progress import Progress
from tff_pcdd.training.callbacks.tensorboard import TensorBoard
from tff_pcdd.training.checkpoints import CheckpointManager
from tff_pcdd.training.config import ExperimentConfig
from tff_pcdd.training.run_options import RunOptions


def around(
    own: Sequence[Callback],
    config: ExperimentConfig,
    options: RunOptions,
    checkpoints: CheckpointManager,
) -> list[Callback]:
    """The built-in callbacks, with those of the user before a checkpoint is saved."""
    callbacks: list[Callback] = [CsvLog()]
    if options.tensorboard:
        callbacks.append(TensorBoard())
    callbacks += map(tracking.create, options.tracker_names())
    if patience := config.evaluation.early_stopping_patience:
        callbacks.append(EarlyStopping(patience))
    callbacks += [*own, SaveCheckpoints(checkpoints, options.checkpoint_every), Pictures()]
    if options.progress:
        callbacks.append(Progress())
    return callbacks
