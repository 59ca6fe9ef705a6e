"""What the callbacks for experiment trackers have in common."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import logging
from collections.abc import Iterable, Iterator
from typing import Any, ClassVar

from tff_pcdd.errors import SettingError
from tff_pcdd.training.callbacks import Callback
from tff_pcdd.training.history import Row

_logger = logging.getLogger(__name__)

# The module of each tracker's callback, beside this one, and the class in it.
TRACKERS = {"mlflow": "Mlflow", "wandb": "WeightsAndBiases"}
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
        if row is not None:
            self._send(row)

    @contextlib.contextmanager
    def _refused(self) -> Iterator[None]:
        """Turns errors of the tracker into those of the setting."""
        try:
            yield
        except Exception as error:  # Each tracker has its own kinds of errors.
            raise SettingError("tracking", self.package, f"cannot be used: {error}") from error

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
    """Checks the names of trackers.

    Raises:
        SettingError: a tracker is unknown or not installed.
    """
    for name in names:
        if name not in TRACKERS:
            reason = f"{name!r} is not one of {', '.join(TRACKERS)}"
            raise SettingError("tracking", given, reason)
        if importlib.util.find_spec(name) is None:
            reason = f"the package {name} is not installed; the extra `tracking` contains it"
            raise SettingError("tracking", given, reason)


def prepare(names: Iterable[str]) -> None:
    """Prepares trackers for runs that several processes compute at the same time.

    Raises:
        SettingError: a tracker cannot be used.
    """
    for name in names:
        tracker = create(name)
        with tracker._refused():
            tracker.prepare()


def create(name: str) -> Tracker:
    """The callback of a tracker, one of `TRACKERS`."""
    # By name, because the module `tracking` is read wherever settings are, without the callbacks.
    module = importlib.import_module(f"tff_pcdd.training.callbacks.{name}")
    return getattr(module, TRACKERS[name])()
