"""A run: an experiment in a directory, which can be interrupted and resumed.

Started again with the same settings and directory, an interrupted run continues from its last
checkpoint. Its results equal those of a run that was never interrupted.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import logging
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tff_pcdd import data, directories, files, findings, measures, stages
from tff_pcdd.data import read_files
from tff_pcdd.data.digest import data_digest, meaning_digest
from tff_pcdd.diagnostics import Diagnostics
from tff_pcdd.errors import DataError, SettingError
from tff_pcdd.experiment import planning
from tff_pcdd.experiment.accuracy_columns import metric_columns
from tff_pcdd.experiment.client_store import MemoryStore
from tff_pcdd.experiment.config import ExperimentConfig
from tff_pcdd.experiment.evaluation_schedule import Due, EvaluationSchedule
from tff_pcdd.experiment.history import History, evaluated_as_last
from tff_pcdd.experiment.nonfinite import COUNTS
from tff_pcdd.experiment.simulation import Simulation
from tff_pcdd.training import (
    disk_space,
    earlier_data,
    manifests,
    predictions,
    recovery,
    run_directory,
    trackers,
    warm_start,
)
from tff_pcdd.training.callbacks import (
    Callback,
    CsvLog,
    EarlyStopping,
    Pictures,
    Progress,
    SaveCheckpoints,
    TensorBoard,
)
from tff_pcdd.training.checkpoints import CheckpointManager
from tff_pcdd.training.disk_store import DiskStore
from tff_pcdd.training.file_names import CHECKPOINTS, CLIENT_STATES, SUMMARY, answer_files
from tff_pcdd.training.run_directory import (
    check_directory,
    delete_run,
    fewer_rounds,
    json_text,
    write_config,
    write_summary,
)
from tff_pcdd.training.run_options import RunOptions
from tff_pcdd.training.summary import find, summarize

if TYPE_CHECKING:
    import numpy as np
    import tensorflow as tf
    from matplotlib.figure import Figure

    from tff_pcdd.export import Exported, ExportOptions

_logger = logging.getLogger(__name__)


class Run:
    """One experiment in one directory. Nothing is written before `train` is called.

    Args:
        config: the settings of the experiment.
        directory: the directory of the results; see `run_directory.check_directory`.
        options: how and where it is computed, and what is written.
        federation: the clients and their samples; by default they are loaded as `config` says.
        callbacks: callbacks in addition to the built-in ones.
        label: text in front of the progress bar; the method's name by default.
        pause_after: the round after which training pauses, if the run does not end before.

    Attributes:
        config, directory, label, pause_after: as given.
        simulation: the computations and their state.
        diagnostics: measures the geometry of features and classifiers; None if not requested.
        history: the measurements of all rounds so far.
        last_round: the round after which the run ends.
        finished: whether the last round has been computed.
        paused: whether training has paused, with a checkpoint, and rounds are left.

    Raises:
        SettingError: the settings cannot be used with the data.
        DataError: the data cannot be read.
        RuntimeStartError: the runtime cannot be started.
    """

    def __init__(
        self,
        config: ExperimentConfig,
        directory: str | os.PathLike,
        options: RunOptions | None = None,
        *,
        federation: data.Federation | None = None,
        callbacks: Sequence[Callback] = (),
        label: str = "",
        pause_after: int | None = None,
    ):
        planning.advise(config)
        self.config = config
        self.directory = Path(directory)
        self.label = label or config.method_title
        self.pause_after = pause_after
        self._options = options = options or RunOptions()
        store: Any = MemoryStore
        if options.client_store == "disk":
            store = functools.partial(DiskStore, directory=self.directory / CLIENT_STATES)
        stages.enter(f"loading data: {config.data.describe()}")
        self.simulation = Simulation(config, federation, compute=options.compute, store=store)
        planning.advise_on_network(config, self.simulation.spec)
        self._schedule = EvaluationSchedule(
            config, self.simulation.federation, self.simulation.process.personal_epochs
        )
        stages.enter("starting the runtime")
        self.simulation.start()
        names = options.diagnostic_names()
        self.diagnostics = (
            Diagnostics(self.simulation.spec, self.simulation.federation, names) if names else None
        )
        self._callbacks = [*map(_copied, options.callbacks), *callbacks]
        self._own = _own_columns(self._callbacks, config)
        self.history = self._new_history()
        self.last_round = config.training.rounds
        self._data = data_digest(self.simulation.federation)
        self._checkpoints = CheckpointManager(
            self.directory / CHECKPOINTS,
            options.keep_checkpoints,
            {"data": self._data, "meaning": meaning_digest(self.simulation.federation)},
            functools.partial(earlier_data.describe, config.data.source),
        )
        self._identify()
        self._callbacks = _with_built_in(self._callbacks, config, options, self._checkpoints)

    def _identify(self) -> None:
        """Tells the checkpoints by which settings those of this run are known."""
        settings = run_directory.settings_of(self.directory, self.config)
        self._checkpoints.identify(settings=manifests.settings_digest(settings))

    def _record_files(self) -> None:
        """Tells the checkpoints which files the data were read from, whose contents are hashed."""
        if recorded := read_files.record(self.simulation.federation.read_files):
            self._checkpoints.identify(**{earlier_data.KEY: recorded})

    def _new_history(self) -> History:
        names = self.diagnostics.columns() if self.diagnostics else ()
        return History.of(self.simulation, (*names, *self._own))

    @property
    def finished(self) -> bool:
        """Whether the last round has been computed and recorded."""
        return self.simulation.round >= self.last_round and bool(
            len(self.history) and self.history[-1]["round"] == self.simulation.round
        )

    @property
    def paused(self) -> bool:
        """Whether training has paused after `pause_after`, before the last round."""
        return self.pause_after is not None and (
            self.pause_after <= self.simulation.round < self.last_round
        )

    def is_due(self, every: int) -> bool:
        """Whether an action that runs every few rounds, and before a stop, is due now."""
        current = self.simulation.round
        stops = current == self.last_round or self.paused
        return stops or (every > 0 and current % every == 0)

    def stop_after(self, round_number: int) -> None:
        """Ends the run after this round, unless it ends earlier.

        The last round has to be evaluated in full. If the given round is over and was not, the run
        ends after the next one.
        """
        current = self.simulation.round
        row = self.history[-1] if len(self.history) else {}
        evaluated = row.get("round") == current and evaluated_as_last(row)
        earliest = current if evaluated else current + 1
        self.last_round = min(self.last_round, max(round_number, earliest))

    def restore(self, round_number: int | None = None) -> None:
        """Loads a checkpoint, with the measurements up to its round.

        Args:
            round_number: the round of the checkpoint; by default the newest that is not damaged.

        Raises:
            FileNotFoundError: there is no such checkpoint.
            DamagedFileError: the checkpoint is damaged, or all of them are.
            SettingError: the run keeps its client states in the other kind of store.
            DataError: the checkpoint belongs to another run, or was written with other data.
        """
        self._restore(round_number)

    def _restore(self, round_number: int | None = None, *, trains: bool = False) -> None:
        simulation = self.simulation
        checkpoint = self._checkpoints.load(
            simulation.invoke(simulation.process.initialize),
            simulation.initial_client_state(0),
            simulation.store,
            round_number,
            unfinished=run_directory.is_unfinished(self.directory),
            trains=trains,
        )
        earlier = History.parse(checkpoint.metrics)
        simulation.restore(
            checkpoint.round,
            checkpoint.server_state,
            checkpoint.totals,
            earlier.nonfinite_before(checkpoint.round),
        )
        self.history = self._new_history()
        # An earlier process may have measured other columns.
        self.history.add_columns(earlier.columns if len(earlier) else ())
        for row in earlier:
            self.history.append(row)

    def train(self, *, overwrite: bool = False) -> dict[str, Any]:
        """Trains until the last round or the pause, from the newest checkpoint if there is one.

        Args:
            overwrite: delete earlier results in the directory and start again.

        Returns:
            The summary, as in summary.json; only {"paused": ROUND} if the run has paused.

        Raises:
            SettingError: the directory contains something other than this run, or another process
                is writing to it, or its disk has too little space for the checkpoints; or the run
                cannot start from the weights that `warm_start` names.
            WriteError: a result cannot be written. The next call continues from the last
                checkpoint.
        """
        check_directory(self.directory, self.config, overwrite)
        warm_start.check([(self.config, self.directory)], overwrite=overwrite)
        with directories.locked(self.directory), contextlib.closing(self.simulation):
            folders = [self.directory / name for name in (CHECKPOINTS, CLIENT_STATES)]
            disk_space.check(self.simulation, self._options, folders)
            if overwrite:
                # Refused before anything is deleted.
                self._start_afresh()
            delete_run(self.directory, only_begun=not overwrite)
            self._prepare(is_fresh=overwrite)
            with contextlib.ExitStack() as stack:
                for callback in self._callbacks:
                    callback.on_start(self)
                    stack.callback(callback.on_end, self)
                while self.simulation.round < self.last_round and not self.paused:
                    self._next_round()
            if self.paused:
                return {"paused": self.simulation.round}
            return self._finish()

    def _finish(self) -> dict[str, Any]:
        """Writes what the models answer, and the summary, which is returned."""
        summary = summarize(self.simulation, self.history, self._own)
        if summary["diverged"]:
            _logger.warning("the run has diverged; its results are not usable")
        answers = predictions.write_answers(
            self, self._checkpoints.newest, with_predictions=self._options.predictions
        )
        summary[findings.KEY] = find(
            self.directory, self.config.to_settings(), summary, self.history
        )
        self._checkpoints.record_results(json_text(summary), answers)
        write_summary(self.directory, summary)
        return summary

    def write_state(self, measured: Mapping[str, Any]) -> dict[str, Any]:
        """Writes the directory of a run whose only round is the current state of the simulation.

        Args:
            measured: values of the row of metrics.csv besides the accuracies.

        Returns:
            The summary, as in summary.json.
        """
        files.make_directory(self.directory)
        write_config(self.directory, self.config, self._options.modules)
        values = {**self.simulation.evaluate(), **self.diagnose(), **measured}
        row = self.history.append({"round": self.simulation.round, **values})
        self.last_round = self.simulation.round
        CsvLog().on_start(self)
        self._record_files()
        SaveCheckpoints(self._checkpoints, every=1).on_round(self, row)
        return self._finish()

    def _prepare(self, *, is_fresh: bool) -> None:
        """Writes the settings, and continues after the newest checkpoint if there is one."""
        files.remove_leftovers(self.directory, "**/.*.tmp", alone=True)
        # Again, because the directory may have changed.
        self._identify()
        self._record_files()
        self._prepare_more_rounds()
        resumed = bool(self._checkpoints.rounds())
        if not resumed and not is_fresh:
            self._start_afresh()
        write_config(self.directory, self.config, self._options.modules)
        if resumed:
            self._restore(trains=True)
            if damage := recovery.damage_of_metrics(self.directory, self.history.text()):
                _logger.warning("%s; restored from the checkpoint", damage)
        self._checkpoints.forget_after(self.simulation.round)
        self.simulation.store.forget_after(self.simulation.round)
        self._stop_if_hopeless()

    def _prepare_more_rounds(self) -> None:
        """Turns a run of fewer rounds into an unfinished one, before its config.json is replaced.

        It continues as if it had been planned for that many from the start. The last round of a run
        is evaluated in full. If it would have been evaluated differently in the longer run, its
        checkpoint is deleted, so that it is computed again.
        """
        directory, rounds = self.directory, self.config.training.rounds
        planned = fewer_rounds(directory, self.config)
        if planned is None:
            return
        # Before anything is deleted.
        newest = self._checkpoints.check(self.simulation.store)
        history = History.parse(newest.metrics if newest else "")
        # In runs of earlier versions, the first row is that of the first evaluation.
        if len(history) and history[0]["round"] > self.config.evaluation.eval_every:
            raise SettingError(
                "rounds",
                rounds,
                f"{directory} has only round {history[0]['round']}, after which its head was "
                "re-trained; name another directory to train with the calibration from the start",
            )
        saved = self._checkpoints.rounds()
        if saved and saved[-1] == planned and not self._is_ordinary(planned):
            earlier = [number for number in saved[:-1] if self._checkpoints.is_intact(number)]
            # The first round is computed again like any other.
            if not earlier and planned > 1:
                only = "only checkpoint" if len(saved) == 1 else "only intact checkpoint"
                raise SettingError(
                    "rounds",
                    rounds,
                    f"the {only} in {directory} is that of round {planned}, which was evaluated "
                    "as the last one; replace the run with `overwrite`",
                )
            kept = earlier[-1] if earlier else 0
            _logger.warning(
                "round %d, the last one of %d planned rounds, is computed again%s: in %d rounds it "
                "is evaluated differently",
                planned,
                planned,
                f", with those from round {kept + 1} on" if kept + 1 < planned else "",
                rounds,
            )
            self._checkpoints.forget_after(kept)
        # What else the shorter run has measured is not of the longer one either.
        for name in (SUMMARY, *answer_files(predictions=True)):
            files.remove(directory / name)

    def _is_ordinary(self, round_number: int) -> bool:
        """Whether a round has the same evaluations if it is not the last one."""
        columns = ""
        # A damaged checkpoint is not used anyway.
        with contextlib.suppress(DataError):
            manifest = manifests.read(self.directory / CHECKPOINTS, round_number)
            columns = manifest.metrics.partition("\n")[0]
        due = self._schedule.after_round(round_number)
        # Some diagnostics are measured in the last round only.
        return "diag_" not in columns and due.globally and due.after

    def _start_afresh(self) -> None:
        """Returns to the state before the first round, if an earlier call of `train` has left it.

        Reads the weights from which the first round starts, if the settings name a run.
        """
        if self.simulation.round > 0:
            self.simulation.restore(0, None, {})
            self.simulation.store.restore({}, [])
            self.history = self._new_history()
            self.last_round = self.config.training.rounds
        run_dir = self.config.training.warm_start
        if run_dir is not None:
            checksum = warm_start.start(self.simulation, run_dir, self._data)
            self._checkpoints.identify(warm_start=checksum)

    def _next_round(self) -> None:
        self._enter("training")
        measured = self.simulation.next_round()
        # A callback may have ended the run with the round before, which has no checkpoint then.
        self.last_round = max(self.last_round, self.simulation.round)
        # Before the evaluation, because the last round is evaluated in full.
        self._stop_if_hopeless()
        planned = self.last_round
        values = self._evaluate()
        self._stop_if_hopeless()
        if self.last_round < planned and not evaluated_as_last(values):
            # Only the evaluation has shown that this round is the last one.
            values = self._evaluate()
        # Read after the evaluation, which may count the round.
        measured |= {name: self.simulation.totals[name] for name in COUNTS}
        measured |= self._measured_by_callbacks()
        row = self.history.append({"round": self.simulation.round, **values, **measured})
        for callback in self._callbacks:
            callback.on_round(self, row)

    def _measured_by_callbacks(self) -> dict[str, float | None]:
        found: dict[str, float | None] = {}
        for callback in self._callbacks:
            values = callback.measure(self)
            declared = [measure.name for measure in callback.measures]
            if unknown := [name for name in values if name not in declared]:
                reason = f"its hook `measure` returned {unknown[0]!r}, which it does not declare"
                raise SettingError("callbacks", callback.name or type(callback).__name__, reason)
            found.update(values)
        return found

    def _enter(self, stage: str) -> None:
        for callback in self._callbacks:
            callback.on_stage(self, stage)

    def _stop_if_hopeless(self) -> None:
        """Makes the current round the last one if too many rounds in a row were not finite."""
        if self.simulation.nonfinite.hopeless:
            self.last_round = min(self.last_round, self.simulation.round)

    def _evaluate(self) -> dict[str, float]:
        """The evaluations that are due after the current round; empty if none is."""
        is_last = self.simulation.round == self.last_round
        due = self._schedule.after_round(self.simulation.round)
        if is_last:
            due = Due(globally=True, before=False, after=True)
        values: dict[str, float] = {}
        if due.globally:
            self._enter("evaluating the global model")
            values |= self.simulation.evaluate_global()
            values |= self.diagnose(slow=is_last)
        if due.after:
            self._enter("evaluating the personal models")
            values |= self.simulation.evaluate_personal()
        elif due.before:
            self._enter("evaluating the personal models before local epochs")
            values |= self.simulation.evaluate_personal(after=False)
        return values

    def clients(self) -> list[dict[str, Any]]:
        """As `Simulation.clients`: what the models reach at each client."""
        return self.simulation.clients()

    def predict(self, x: Any, client: str | int | None = None) -> np.ndarray:
        """As `Simulation.predict`: the classes of raw inputs."""
        return self.simulation.predict(x, client)

    def keras_model(
        self, client: str | int | None = None, *, local_epochs: bool = True
    ) -> tf.keras.Model:
        """As `Simulation.keras_model`: the global model, or that of a client."""
        return self.simulation.keras_model(client, local_epochs=local_epochs)

    @property
    def title(self) -> str:
        """What pictures of it are called."""
        title = self.simulation.title
        if self.simulation.nonfinite.diverged:
            title += " (diverged)"
        elif excluded := self.simulation.totals["excluded_clients"]:
            title += f"\nclients excluded because of NaN or infinities: {excluded} times"
        return title

    def plot(self) -> Figure:
        """The curves of GA and PA over the rounds, as in plots/accuracy.png."""
        from tff_pcdd.training import plots

        has_global_model = self.config.method.has_global_model
        figure, _ = plots.accuracy_curves(
            self.history, self.title, has_global_model=has_global_model
        )
        return figure

    def export(
        self, export_dir: str | os.PathLike, options: ExportOptions | None = None, **further: Any
    ) -> list[Exported]:
        """As `tff_pcdd.export_run`, with the settings and the federation of this run.

        Args:
            export_dir: directory to which the models are written.
            options: which models, and their formats.
            **further: `round_number` and `overwrite`, as for `export_run`.
        """
        from tff_pcdd.export import export_run

        return export_run(
            self.directory,
            export_dir,
            options,
            self._options,
            config=self.config,
            federation=self.simulation.federation,
            **further,
        )

    def report(self) -> Path:
        """Writes report.html, the page of the programs, into the directory, and returns its path.

        Raises:
            SettingError: nothing has been trained yet.
            DataError: a file of the run is damaged.
            WriteError: the page cannot be written.
        """
        from tff_pcdd.report import write_report

        return write_report(run_dir=self.directory).path

    def __repr__(self) -> str:
        return (
            f"Run({self.simulation.title}: round {self.simulation.round} of {self.last_round}, in "
            f"{self.directory})"
        )

    def _repr_html_(self) -> str | None:
        """The key figures and the curves of the report, in notebooks."""
        from tff_pcdd.report import notebook

        return notebook.run(self)

    def diagnose(self, *, slow: bool = True) -> dict[str, float]:
        """The diagnostics of the current state; those that take seconds only if `slow`."""
        if self.diagnostics is None:
            return {}
        simulation = self.simulation
        clients = [
            (simulation.store.get(client), simulation.client_data(client))
            for client in self.diagnostics.clients
        ]
        return self.diagnostics.measure(simulation.state, clients, slow=slow)


# The callbacks of a run in a directory, in their order.


def _copied(callback: Callback) -> Callback:
    """A copy of a registered callback that shares nothing, if that is possible."""
    try:
        return copy.deepcopy(callback)
    # It holds an open file, a lock or a module.
    except TypeError:
        return copy.copy(callback)


def _own_columns(callbacks: Sequence[Callback], config: ExperimentConfig) -> list[str]:
    """The columns of callbacks."""
    others = [*config.method.metric_names, *metric_columns(config.evaluation.metrics)]
    names: list[str] = []
    for callback in callbacks:
        names += [measure.name for measure in callback.measures]
        if reason := measures.check_names(names, others):
            name = callback.name or type(callback).__name__
            raise SettingError("callbacks", name, f"its measures contain {reason}; rename it")
        for measure in callback.measures:
            measures.declare(measure)
    return names


def _with_built_in(
    own: Sequence[Callback],
    config: ExperimentConfig,
    options: RunOptions,
    checkpoints: CheckpointManager,
) -> list[Callback]:
    """The built-in callbacks, with those of the user before a checkpoint is saved."""
    callbacks: list[Callback] = [CsvLog()]
    if options.tensorboard:
        callbacks.append(TensorBoard())
    callbacks += map(trackers.create, options.tracker_names())
    if patience := config.evaluation.early_stopping_patience:
        callbacks.append(EarlyStopping(patience))
    callbacks += [*own, SaveCheckpoints(checkpoints, options.checkpoint_every), Pictures()]
    if options.progress:
        callbacks.append(Progress())
    return callbacks
