"""A progress bar."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import tqdm

from tff_pcdd import stages
from tff_pcdd.training.callbacks import Callback
from tff_pcdd.training.summary import typical_seconds

if TYPE_CHECKING:
    from tff_pcdd.training.history import Row
    from tff_pcdd.training.run import Run

# As tqdm's own, but for the seconds per round: those of the summary, without evaluations and the
# first round. The time left does include them.
FORMAT = "{l_bar}{bar}| {n_fmt}/{total_fmt} [{elapsed}<{remaining}{postfix}]"


def first_text(run: Run) -> str | None:
    """What stands behind the bar of a run before its first round."""
    # Without an update, nothing shows that the first round takes longer than the others.
    return "first round" if run.simulation.round < run.last_round else None


def text(run: Run, row: Row) -> str:
    """What stands behind the bar of a run after a round: its speed and the latest accuracies."""
    shown = {"GA": row.get("ga"), "PA": row.get("pa")}
    known = {name: f"{value:.1f}" for name, value in shown.items() if value is not None}
    if row.get("nonfinite_rounds"):
        known["not finite"] = f"{row['nonfinite_rounds']} rounds"
    parts = [f"{name}={value}" for name, value in known.items()]
    if len(run.history):
        parts.insert(0, f"{typical_seconds(run.history):.3g} s/round")
    return ", ".join(parts)


class _Stage(stages.Delayed):
    """Shows what takes long behind a bar on a terminal."""

    def __init__(self, bar: tqdm.tqdm):
        super().__init__()
        self._bar = bar
        self.text = bar.postfix or ""

    def show(self, stage: str) -> bool:
        if sys.stderr.isatty():
            self._bar.set_postfix_str(f"{self.text}, {stage} …" if self.text else f"{stage} …")
        return sys.stderr.isatty()


class Progress(Callback):
    """Shows the latest accuracies and the time left, on standard error."""

    _bar: tqdm.tqdm  # Made by `on_start`, which knows the number of rounds.
    _stage: _Stage

    def on_start(self, run):
        stages.leave()
        self._bar = tqdm.tqdm(
            total=run.last_round,
            initial=run.simulation.round,
            desc=run.label,
            unit="round",
            bar_format=FORMAT,
            postfix=first_text(run),
            # In a log file, every update is a new line, so there are fewer of them.
            mininterval=0.5 if sys.stderr.isatty() else 10,
        )
        self._stage = _Stage(self._bar)

    def on_stage(self, run, stage):
        self._stage.enter(stage)

    def on_round(self, run, row):
        self._stage.enter("")
        if row is not None:
            self._stage.text = text(run, row)
        self._bar.set_postfix_str(self._stage.text, refresh=False)
        self._bar.total = run.last_round
        self._bar.update()

    def on_end(self, run):
        self._stage.enter("")
        self._bar.close()
