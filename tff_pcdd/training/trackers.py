"""What the callbacks for experiment trackers have in common."""

from __future__ import annotations

import contextlib
import importlib.util
import logging
import os
import re
import secrets
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, ClassVar

from tff_pcdd import files
from tff_pcdd.errors import SettingError, nearest, question
from tff_pcdd.experiment.history import Row
from tff_pcdd.training.callbacks import Callback
from tff_pcdd.training.file_names import WANDB_RECORD

_logger = logging.getLogger(__name__)


# Where results of runs are collected unless the tracker's own environment variable names a place.
PROJECT = "tff_pcdd"


class Tracker(Callback):
    """Sends settings and measurements to a tracker; subclasses do what differs between trackers.

    Rounds that the tracker does not have yet are sent when a run starts, so it also has the rounds
    before a resumption. A tracker that fails later does not end the run: a warning says so, and the
    missing rounds are sent when the run is resumed.

    Attributes:
        package: the tracker's Python package.
    """

    package: ClassVar[str]

    def __init__(self) -> None:
        self._last_round = 0
        self._failed = False

    def prepare(self) -> None:
        """Creates what all runs share; called before several processes open a record."""

    def open(self, run: Any) -> int:
        """Finds or creates the tracker's record of the run; returns the last round it has."""
        raise NotImplementedError

    def send(self, round_number: int, values: dict[str, float]) -> None:
        """Sends the measurements of a round."""
        raise NotImplementedError

    def close(self, finished: bool) -> None:
        """Called at the end; `finished` tells whether the last round has been computed."""
        raise NotImplementedError

    def on_start(self, run):
        with self._refused():
            self._last_round = self.open(run)
        for row in run.history:
            self._send(row)

    def on_round(self, run, row):
        self._send(row)

    @contextlib.contextmanager
    def _refused(self) -> Iterator[None]:
        """Turns errors of the tracker into those of the setting."""
        try:
            yield
        except Exception as error:  # Each tracker has its own kinds of errors.
            reason = f"cannot be used: {' '.join(str(error).split())}"
            raise SettingError("tracking", self.package, reason) from error

    def on_end(self, run):
        if not self._failed:
            self._guarded(self.close, run.finished)

    def _send(self, row: Row) -> None:
        number = row["round"]
        if self._failed or number <= self._last_round:
            return
        values = {
            name: value for name, value in row.items() if name != "round" and value is not None
        }
        self._guarded(self.send, number, values)
        self._last_round = number

    def _guarded(self, function: Any, *arguments: Any) -> None:
        try:
            function(*arguments)
        except Exception as error:
            self._failed = True
            reason = " ".join(str(error).split())[:200]
            _logger.warning("%s gets no more results of this process: %s", self.package, reason)


def check(names: list[str], given: str) -> None:
    """Checks the names of trackers."""
    for name in names:
        if name not in TRACKERS:
            reason = (
                f"{name!r} is not one of {', '.join(TRACKERS)}{question(nearest(name, TRACKERS))}"
            )
            raise SettingError("tracking", given, reason)
        if importlib.util.find_spec(name) is None:
            reason = f"the package {name} is not installed; the extra [tracking] contains it"
            raise SettingError("tracking", given, reason)


def prepare(names: Iterable[str]) -> None:
    """Prepares trackers for runs that several processes compute at the same time."""
    for name in names:
        tracker = create(name)
        with tracker._refused():
            tracker.prepare()


def create(name: str) -> Tracker:
    """The callback of a tracker, one of `TRACKERS`."""
    return TRACKERS[name]()


# By these tags, a resumed run finds its record.
_DIRECTORY, _SETTINGS = "tff_pcdd.directory", "tff_pcdd.settings"
# The most parameters that MLflow takes in one request.
_BATCH = 100


class Mlflow(Tracker):
    """Settings as MLflow's parameters, and measurements as its metrics, with the round as step."""

    package = "mlflow"

    _client: Any
    _run_id: str

    def prepare(self):
        from mlflow.tracking import MlflowClient

        _experiment(MlflowClient())

    def open(self, run):
        from mlflow.entities import Param
        from mlflow.tracking import MlflowClient

        self._client = client = MlflowClient()
        identity = _experiment(client)
        tags = {_DIRECTORY: os.fspath(run.directory.resolve()), _SETTINGS: run.config.digest()}
        # A comparison in Python: MLflow's filter has no way to quote every path.
        known = [
            record
            for record in client.search_runs(
                [identity], f"tags.`{_SETTINGS}` = '{tags[_SETTINGS]}'"
            )
            if record.data.tags.get(_DIRECTORY) == tags[_DIRECTORY]
        ]
        if run.simulation.round and known:
            self._run_id = known[0].info.run_id
            client.update_run(self._run_id, status="RUNNING")
        else:
            self._run_id = client.create_run(identity, run_name=run.label, tags=tags).info.run_id
            params = [Param(key, str(value)) for key, value in run.config.to_settings().items()]
            for start in range(0, len(params), _BATCH):
                client.log_batch(self._run_id, params=params[start : start + _BATCH])
        steps = [metric.step for metric in client.get_metric_history(self._run_id, "seconds")]
        return max(steps, default=0)

    def send(self, round_number, values):
        from mlflow.entities import Metric

        now = int(time.time() * 1000)
        metrics = [Metric(name, value, now, round_number) for name, value in values.items()]
        self._client.log_batch(self._run_id, metrics=metrics)

    def close(self, finished):
        self._client.set_terminated(self._run_id, "FINISHED" if finished else "KILLED")


def _experiment(client: Any) -> str:
    """MLflow's identity of the experiment under which records are collected; creates it."""
    name = os.environ.get("MLFLOW_EXPERIMENT_NAME", PROJECT)
    experiment = client.get_experiment_by_name(name)
    return experiment.experiment_id if experiment else client.create_experiment(name)


class WeightsAndBiases(Tracker):
    """Settings as the record's configuration, and measurements with the round as step."""

    package = "wandb"

    _record: Any

    def open(self, run):
        import wandb

        # A resumed run continues its record; offline, it starts another one.
        path = run.directory / WANDB_RECORD
        identity = _identity(path) if run.simulation.round else None
        if identity is None:
            identity = secrets.token_hex(8)
            files.write_text(path, identity)
        self._record = wandb.init(
            project=os.environ.get("WANDB_PROJECT", PROJECT),
            name=run.label,
            id=identity,
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


def _identity(path: Path) -> str | None:
    """The identity in a run's directory; None if there is none."""
    try:
        found = files.read_bytes(path, 100).decode(errors="replace")
    except FileNotFoundError:
        return None
    return found if re.fullmatch("[0-9a-f]{16}", found) else None


TRACKERS: dict[str, type[Tracker]] = {"mlflow": Mlflow, "wandb": WeightsAndBiases}
