"""A progress bar."""

from __future__ import annotations

import sys

import tqdm

from tff_pcdd.training.callbacks import Callback


class Progress(Callback):
    """Shows the latest accuracies and the time left, on standard error."""

    _bar: tqdm.tqdm  # Made by `on_start`, which knows the number of rounds.

    def on_start(self, run):
        self._bar = tqdm.tqdm(
            total=run.last_round,
            initial=run.simulation.round,
            desc=run.label,
            unit="round",
            # In a log file, every update is a new line, so there are fewer of them.
            mininterval=0.5 if sys.stderr.isatty() else 10,
        )

    def on_round(self, run, row):
        if row is not None:
            shown = {"GA": row.get("ga"), "PA": row.get("pa")}
            known = {name: f"{value:.1f}" for name, value in shown.items() if value is not None}
            if row.get("nonfinite_rounds"):
                known["not finite"] = f"{row['nonfinite_rounds']} rounds"
            self._bar.set_postfix(known, refresh=False)
        self._bar.total = run.last_round
        self._bar.update()

    def on_end(self, run):
        self._bar.close()
