"""Settings and measurements for Weights & Biases.

Its own environment variables, such as `WANDB_PROJECT`, `WANDB_DIR` and `WANDB_MODE=offline`, say
where they go.
"""

from __future__ import annotations

import hashlib
import os
from typing import Any

from tff_pcdd.training.callbacks.tracking import PROJECT, Tracker


class WeightsAndBiases(Tracker):
    """Settings as the record's configuration, and measurements with the round as step."""

    package = "wandb"

    _record: Any

    def open(self, run):
        import wandb

        # The same for a resumed run, which continues the record; offline, it starts another one.
        place = f"{run.directory.resolve()}\n{run.config.digest()}"
        self._record = wandb.init(
            project=os.environ.get("WANDB_PROJECT", PROJECT),
            name=run.label,
            id=hashlib.sha256(place.encode()).hexdigest()[:16],
            resume="allow",
            config=run.config.to_settings(),
            settings=wandb.Settings(silent=True, console="off"),
        )
        # The record's step is the next one that it takes.
        return max(self._record.step - 1, 0)

    def send(self, round_number, values):
        self._record.log(values, step=round_number)

    def close(self, finished):
        self._record.finish(exit_code=0 if finished else 1)
