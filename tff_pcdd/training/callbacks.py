"""Callbacks: hooks for what happens beside training.

Your own callback overrides the hooks that it needs:

    class PrintGA(Callback):
        def on_round(self, run, row):
            if row["ga"] is not None:
                print(row["round"], row["ga"])

    run_experiment(config, "runs/mine", callbacks=[PrintGA()])

A registered one can be chosen by its name, with `--callbacks=norm`, and one with measures
adds columns to metrics.csv, which summary.json, comparisons, reports and model cards show too:

    @register
    class Norm(Callback):
        name = "norm"
        measures = (Measure("norm", "weight norm", "L2 norm of the global weights", "", "", OWN),)

        def measure(self, run):
            weights = tf.nest.flatten(run.simulation.state.weights)
            return {"norm": float(np.sqrt(sum(np.square(each).sum() for each in weights)))}
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import tqdm
from etils import epy

from tff_pcdd import files, measures, stages
from tff_pcdd.errors import SettingError
from tff_pcdd.experiment import history
from tff_pcdd.experiment.history import History
from tff_pcdd.measures import Measure
from tff_pcdd.registry import Component, Registry
from tff_pcdd.training.checkpoints import Checkpoint, CheckpointManager
from tff_pcdd.training.file_names import METRICS
from tff_pcdd.training.summary import best_round, typical_seconds

if TYPE_CHECKING:
    from tff_pcdd.experiment.history import Row
    from tff_pcdd.training.run import Run

# Settings are read without TensorFlow, and Matplotlib is not needed before the last round.
with epy.lazy_imports():
    import tensorflow as tf

    from tff_pcdd.diagnostics import plots as diagnostic_plots
    from tff_pcdd.training import plots


class Callback(Component):
    """Base class of callbacks; its hooks do nothing.

    A callback may read `run.simulation`, `run.history`, `run.config`, `run.directory`, `run.label`
    and `run.last_round`, and it may call `run.stop_after(round)`. Each run that names a registered
    callback has a copy of its own.

    Attributes:
        name: the name by which it is chosen, if it is registered.
        measures: the columns that it adds to the history; see `measure`.
    """

    measures: ClassVar[Sequence[Measure]] = ()

    def on_start(self, run: Run) -> None:
        """Called once, before the process computes its first round, `simulation.round + 1`.

        If the run is resumed, `run.history` already contains the earlier rounds.
        """

    def on_stage(self, run: Run, stage: str) -> None:
        """Called before each part of a round: "training", "evaluating the global model", ..."""

    def measure(self, run: Run) -> Mapping[str, float | None]:
        """The values of `measures` after a round, before its row is recorded.

        Called after every round, when `run.history` ends with the round before. A value that is
        missing, None, NaN or infinite leaves the cell empty.
        """
        return {}

    def on_round(self, run: Run, row: Row) -> None:
        """Called after every round; `row` is its row in the history.

        A value that was not measured in this round is None, such as `row["ga"]` in a round without
        an evaluation of the global model. If the run is resumed, this is not called again for the
        rounds in `run.history`: what shall end the run, even if it was interrupted before its last
        round, is decided from them in `on_start` too.
        """

    def on_end(self, run: Run) -> None:
        """Called when training ends, also if it fails; `run.finished` tells which."""


registry: Registry[Callback] = Registry("callbacks", __name__)


def register(cls: type[Callback]) -> type[Callback]:
    """Class decorator that makes a callback known by its `name`, and declares its measures.

    Raises:
        SettingError: it has no name, or another callback has it; or one of its columns has the name
            of another one.
    """
    for measure in cls.measures:
        try:
            measures.declare(measure)
        except ValueError as error:
            raise SettingError("callbacks", cls.name, f"{error}; rename it") from None
    return registry.register(cls)


class CsvLog(Callback):
    """Appends each row of the history to metrics.csv as it is measured.

    A row is on the disk before the checkpoint that follows it.
    """

    def on_start(self, run):
        # Drops rows of rounds after the checkpoint, and an incomplete row: both are computed again.
        text = history.csv_text(run.history.columns, run.history)
        files.write_text(run.directory / METRICS, text)

    def on_round(self, run, row):
        text = history.csv_text(run.history.columns, [row], header=False)
        files.append_text(run.directory / METRICS, text)


class SaveCheckpoints(Callback):
    """Saves a checkpoint every few rounds, after the last one, and after each new best one.

    The best of the rounds that have a checkpoint is kept beside the newest ones; see `best_round`.
    """

    def __init__(self, manager: CheckpointManager, every: int):
        self._manager = manager
        self._every = every
        # Of the best round, and of those that have a checkpoint.
        self._rows: list[Row] = []

    def on_start(self, run):
        self._rows = list(run.history)

    def on_round(self, run, row):
        simulation, current = run.simulation, run.simulation.round
        self._rows.append(row)
        best = best_round(run.config, self._rows)
        if run.is_due(self._every) or best == current:
            checkpoint = Checkpoint(
                current, simulation.state, simulation.totals, run.history.text()
            )
            self._manager.save(
                checkpoint, simulation.store, best_round(run.config, self._of({current}))
            )
        self._rows = self._of({best})

    def _of(self, rounds: set[int | None]) -> list[Row]:
        """The rows of these rounds, and of those that have a checkpoint."""
        kept = {*rounds, *self._manager.rounds()}
        return [row for row in self._rows if row["round"] in kept]


class EarlyStopping(Callback):
    """Ends a run whose validation accuracy has not improved for a number of evaluations.

    After the decision there is one more round, which is evaluated in full like the last round of
    any run. The decision depends on the history alone, so a resumed run stops in the same round.
    """

    def __init__(self, patience: int):
        self._patience = patience

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
        for round_number, value in history.points("va"):
            best, waited = (value, 0) if value > best else (best, waited + 1)
            if waited >= self._patience:
                return round_number
        return None


PLOTS = "plots"


class Pictures(Callback):
    """Draws the accuracies, the clients' classes and the selected diagnostics of a finished run."""

    def on_end(self, run):
        if not run.finished:
            return
        stages.enter("drawing pictures")
        folder, config, federation = run.directory / PLOTS, run.config, run.simulation.federation
        plots.save(run.plot(), folder / "accuracy.png")
        figure, _ = plots.class_counts(
            federation.every_class_counts(),
            federation.class_names,
            config.data.describe(),
            federation.every_title,
        )
        plots.save(figure, folder / "clients.png")
        if run.diagnostics is not None:
            figures = diagnostic_plots.figures(
                run.diagnostics,
                run.history,
                run.simulation.state,
                federation.class_names,
                run.title,
            )
            for name, figure in figures.items():
                plots.save(figure, folder / f"diag_{name}.png")


# As tqdm's own, but for the seconds per round: those of the summary, without evaluations and the
# first round. The time left does include them.
FORMAT = "{l_bar}{bar}| {n_fmt}/{total_fmt} [{elapsed}<{remaining}{postfix}]"


def first_text(run: Run) -> str | None:
    """What stands behind the bar of a run before its first round."""
    # Without an update, nothing shows that the first round takes longer than the others.
    return "first round" if run.simulation.round < run.last_round else None


def text(run: Run) -> str:
    """What stands behind the bar of a run after a round: its speed and the latest accuracies."""
    parts = [f"{typical_seconds(run.history):.3g} s/round"]
    columns = {"GA": "ga", "PA": "pa"}
    for row in reversed(run.history):
        found = {name: row.get(column) for name, column in columns.items()}
        known = [f"{name}={value:.1f}" for name, value in found.items() if value is not None]
        if known:
            parts += known
            break
    if rounds := run.history[-1].get("nonfinite_rounds"):
        parts.append(f"not finite={rounds} rounds")
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


def bar(**options: Any) -> tqdm.tqdm:
    """A progress bar; a widget in notebooks that can show one."""
    with warnings.catch_warnings():
        # Without ipywidgets, a notebook shows text.
        warnings.simplefilter("ignore", tqdm.TqdmWarning)
        from tqdm import auto
    # In a log file, every update is a new line, so there are fewer of them.
    is_live = sys.stderr.isatty() or auto.notebook_tqdm is not tqdm.tqdm
    return auto.tqdm(mininterval=0.5 if is_live else 10, **options)


class Progress(Callback):
    """Shows the latest accuracies and the time left, on standard error."""

    _bar: tqdm.tqdm  # Made by `on_start`, which knows the number of rounds.
    _stage: _Stage

    def on_start(self, run):
        stages.leave()
        self._bar = bar(
            total=run.last_round,
            initial=run.simulation.round,
            desc=run.label,
            unit="round",
            bar_format=FORMAT,
            postfix=first_text(run),
        )
        self._stage = _Stage(self._bar)

    def on_stage(self, run, stage):
        self._stage.enter(stage)

    def on_round(self, run, row):
        self._stage.enter("")
        self._stage.text = text(run)
        self._bar.set_postfix_str(self._stage.text, refresh=False)
        self._bar.total = run.last_round
        self._bar.update()

    def on_end(self, run):
        self._stage.enter("")
        self._bar.close()


TENSORBOARD = "tensorboard"


class TensorBoard(Callback):
    """Writes every measurement as a scalar, with the round as its step."""

    _folder: Path

    def __init__(self):
        self._writer: Any = None

    def on_start(self, run):
        self._folder = run.directory / TENSORBOARD
        files.make_directory(self._folder)
        with files.writing(self._folder, tf.errors.OpError):
            # As bytes, for TensorFlow takes texts for UTF-8, in any locale.
            self._writer = tf.summary.create_file_writer(os.fsencode(self._folder))

    def on_round(self, run, row):
        with files.writing(self._folder, tf.errors.OpError):
            with self._writer.as_default(step=row["round"]):
                for name, value in row.items():
                    if name != "round" and value is not None:
                        tf.summary.scalar(name, value)
            self._writer.flush()

    def on_end(self, run):
        with files.writing(self._folder, tf.errors.OpError):
            self._writer.close()
