"""Computes several runs of a study at the same time, in processes that this one starts."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import logging
import multiprocessing
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from multiprocessing import connection
from pathlib import Path
from typing import Any

import cloudpickle
import tqdm

from tff_pcdd import stages
from tff_pcdd.runtime import RuntimeStartError, processes
from tff_pcdd.studies import run_process
from tff_pcdd.studies.parallel import ParallelOptions
from tff_pcdd.studies.run_process import Setup
from tff_pcdd.studies.study import Failure, StudyRun
from tff_pcdd.training import ExperimentConfig, RunOptions, callbacks, trackers
from tff_pcdd.training.start import finished_result

_logger = logging.getLogger(__name__)

# The module path is that of this process, because modules of the user's may lie beside a script. So
# is the package, although its folder need not be on the path.
_PROGRAM = """\
import importlib.util, sys
from multiprocessing.connection import Connection
connection = Connection(int(sys.argv[1]))
package, sys.path[:] = connection.recv()
spec = importlib.util.spec_from_file_location("tff_pcdd", package)
sys.modules["tff_pcdd"] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(sys.modules["tff_pcdd"])
from tff_pcdd.studies.run_process import main
main(connection)
"""
_PACKAGE = str(Path(__file__).parents[1] / "__init__.py")
# Signals of a terminal reach all processes that it has started; only this one handles them.
_OF_TERMINALS = (signal.SIGINT, signal.SIGHUP)
# Seconds that the system needs at most to end a process that has closed its connection.
_PATIENCE = 10.0

# Seconds between two rounds that are shown.
_PAUSE = 0.2

_ALL_RUNS = "{desc}: {percentage:3.0f}%|{bar}| [{elapsed}<{remaining}{postfix}]"


class _Process:
    """A process that computes runs, and the connection to it.

    The kernel kills it when the thread that has started it ends.
    """

    def __init__(self, setup: Setup, environment: Mapping[str, str]):
        self.connection, there = multiprocessing.Pipe()
        with there, _blocked():
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-c", _PROGRAM, str(there.fileno())],
                stdin=subprocess.DEVNULL,
                pass_fds=[there.fileno()],
                env=environment,
            )
        self._send(self.connection.send, (_PACKAGE, sys.path))
        self._send(self.connection.send, setup)

    def request(self, function: Callable[..., Any], *arguments: Any) -> None:
        """Asks the process to call a function of `run_process`; "end" is the last news of that."""
        # Other than `pickle`, it takes classes of a script or notebook too.
        self._send(self.connection.send_bytes, cloudpickle.dumps((function, *arguments)))

    def _send(self, send: Callable[[Any], None], value: Any) -> None:
        # If the process has died, whoever waits for its news will know.
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            send(value)

    def news(self) -> tuple[str, Any] | None:
        """The kind and value of the next news, see `run_process`; None if the process has died."""
        try:
            return self.connection.recv()
        except (EOFError, OSError):
            return None

    @property
    def has_ended(self) -> bool:
        return self._process.poll() is not None

    def describe_end(self) -> str:
        """How the process has ended, after its last news."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_PATIENCE)
        self.kill()
        how = processes.describe_end(self._process.returncode)
        out_of_memory = self._process.returncode == -signal.SIGKILL
        return f"{how}; perhaps the memory is not sufficient" if out_of_memory else how

    def kill(self) -> None:
        """Ends the process, which may be computing."""
        self._process.kill()
        self._process.wait()
        self.connection.close()


@contextlib.contextmanager
def _blocked():
    """A process that is started in the block does not get the signals of a terminal."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _OF_TERMINALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class _Display:
    """Shows how far the runs are: a line on a terminal, and above it one for each run that ends."""

    def __init__(self, runs: int, *, shown: bool):
        self._shown = shown
        self._runs, self._finished = runs, 0
        self._written = 0.0
        stages.leave()
        self._bar = tqdm.tqdm(
            desc=self._description(),
            total=runs,
            bar_format=_ALL_RUNS,
            leave=False,
            dynamic_ncols=True,
            disable=not (shown and sys.stderr.isatty()),
        )

    def _description(self) -> str:
        return f"{self._finished} of {self._runs} runs"

    def update(self, running: Sequence[_Running], *, at_once: bool = True) -> None:
        """Shows the runs that are being computed; a part of a run counts as this part.

        Unless `at_once`, a line that has just been written is kept.
        """
        now = time.monotonic()
        if not at_once and now < self._written + _PAUSE:
            return
        self._written = now
        self._bar.set_description_str(self._description(), refresh=False)
        self._bar.set_postfix_str(", ".join(run.describe() for run in running), refresh=False)
        self._bar.n = self._finished + sum(run.share for run in running)
        self._bar.refresh()

    def end(self, run: _Running) -> None:
        """Shows a run that has ended as a bar of its own, like that of a serial run."""
        if self._shown:
            line = tqdm.tqdm.format_meter(
                run.rounds,
                run.last_round,
                time.monotonic() - run.began,
                initial=run.first_round,
                prefix=run.label,
                bar_format=callbacks.FORMAT,
                postfix=run.text,
                ascii=not (sys.stderr.encoding or "").lower().startswith("utf"),
            )
            tqdm.tqdm.write(line, file=sys.stderr)

    def count(self) -> None:
        """Counts a run as finished; the last one removes the line."""
        self._finished += 1
        if self._finished == self._runs:
            self.close()

    def close(self) -> None:
        self._bar.close()


@dataclasses.dataclass
class _Running:
    """A run that is being computed, and what its process has reported.

    Attributes:
        number: its position in the study.
        run: the run.
        label: its name in the progress display.
        overwrite: whether its process deletes earlier results.
        tries: the number of processes that have tried to compute it.
        has_begun: whether a process has begun to write in its directory.
        began: when its first round began.
        first_round: the number of rounds before that.
        rounds, last_round, text, stage: where it is.
    """

    number: int
    run: StudyRun
    label: str
    overwrite: bool = False
    tries: int = 1
    has_begun: bool = False
    began: float = 0.0
    first_round: int = 0
    rounds: int = 0
    last_round: int = 1
    text: str = ""
    stage: str = ""

    @property
    def share(self) -> float:
        """Which part of it is done."""
        return min(1.0, self.rounds / max(1, self.last_round))

    def describe(self) -> str:
        if self.stage or not self.has_begun:
            return f"{self.run.label} {self.stage or 'starting'} …"
        return f"{self.run.label} {self.rounds}/{self.last_round}"


class ParallelRuns:
    """Computes runs in processes of their own, which are started for the first of them.

    Each process computes one run after the other, so it imports libraries only once; this process
    does not import TensorFlow. As a context manager, this object ends all processes that it has
    started.
    """

    def __init__(self, parallel: ParallelOptions, options: RunOptions | None):
        self._parallel = parallel
        self._options = options or RunOptions()
        # By their places, see `ParallelOptions`.
        self._processes: dict[int, _Process] = {}
        self._running: dict[int, _Running] = {}
        self._outcomes: collections.deque[tuple[int, Any]] = collections.deque()
        # Messages that are not about a single run.
        self._messages: set[str] = set()
        self._display: _Display | None = None
        self._trackers_prepared = False

    def __enter__(self) -> ParallelRuns:
        return self

    def __exit__(self, *exc_info: object) -> None:
        for process in self._processes.values():
            process.kill()
        if self._display is not None:
            self._display.close()

    @property
    def busy(self) -> int:
        """The number of runs whose outcomes have not been returned yet."""
        return len(self._running) + len(self._outcomes)

    @property
    def free(self) -> bool:
        """Whether another run can be started."""
        return self.busy < self._parallel.parallel_runs

    def begin(self, configs: Sequence[ExperimentConfig], runs: int) -> None:
        """Checks the settings and methods of runs, in one of the processes that will compute them.

        All of them import TensorFlow meanwhile.

        Raises:
            SettingError: a run cannot be computed; names all methods that are refused.
            RuntimeStartError: a process ends.
        """
        places = range(min(len(configs), self._parallel.parallel_runs))
        if configs and not self._processes:
            stages.enter("importing TensorFlow")
        checked = [[] if place else configs for place in places]
        kept = set(self._processes)
        for place in places:
            self._process(place).request(run_process.check, checked[place], self._options)
        for place in places:
            self._wait_for_check(place, checked[place], place in kept)
        self._display = _Display(runs, shown=self._options.progress)

    def _wait_for_check(
        self, place: int, configs: Sequence[ExperimentConfig], was_kept: bool
    ) -> None:
        while (news := self._processes[place].news()) is not None:
            kind, value = news
            if kind != "end":
                self._take(place, kind, value)
            elif isinstance(value, Failure):
                raise value.error or RuntimeError(value.text)
            else:
                return
        how = self._processes.pop(place).describe_end()
        if not was_kept:
            raise RuntimeStartError(f"a process for the runs {how}")
        # It was ending when the list of runs before was done.
        self._process(place).request(run_process.check, configs, self._options)
        self._wait_for_check(place, configs, was_kept=False)

    def start(self, number: int, run: StudyRun, label: str, *, overwrite: bool) -> None:
        """Starts to compute a run, unless it is already finished."""
        try:
            outcome: Any = finished_result(
                run.config, run.folder, self._options, overwrite=overwrite, **run.limits
            )
        except Exception as error:
            outcome = Failure.of(error)
        if outcome is not None:
            self._outcomes.append((number, outcome))
            return
        if not self._trackers_prepared:
            trackers.prepare(self._options.tracker_names())
            self._trackers_prepared = True
        place = min(set(range(self._parallel.parallel_runs)).difference(self._running))
        self._running[place] = _Running(number, run, label)
        self._compute(place, overwrite=overwrite)
        self._show()

    def wait(self, seconds: float | None = None) -> tuple[int, Mapping[str, Any] | Failure] | None:
        """Waits until a run ends, or for so many seconds."""
        deadline = None if seconds is None else time.monotonic() + seconds
        while not self._outcomes:
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and left < 0:
                return None
            places = {self._processes[place].connection: place for place in self._running}
            for ready in connection.wait([*places], left):
                place = places[ready]  # type: ignore[index]
                if (news := self._processes[place].news()) is None:
                    self._try_again(place)
                elif news[0] == "end":
                    self._end(place, news[1])
                else:
                    self._take(place, *news)
        return self._outcomes.popleft()

    def count(self) -> None:
        """Counts a run as done in the progress display."""
        assert self._display is not None
        self._display.count()
        self._show()

    def _compute(self, place: int, *, overwrite: bool) -> None:
        """Asks the process at a place to compute its run."""
        run, clients = self._running[place], self._parallel.clients_at_a_time(place)
        run.overwrite = overwrite
        request = run.run, self._options, overwrite, run.label, clients
        self._process(place).request(run_process.compute, *request)

    def _process(self, place: int) -> _Process:
        """The process that computes the runs at a place; a new one if it has died meanwhile."""
        if place not in self._processes or self._processes[place].has_ended:
            setup = Setup.of(tuple(self._options.modules), self._parallel.cores(place))
            self._processes[place] = _Process(setup, self._parallel.environment(place))
        return self._processes[place]

    def _try_again(self, place: int) -> None:
        """Replaces a process that has died, unless two have died with the same run."""
        how = self._processes.pop(place).describe_end()
        run = self._running[place]
        if run.tries == 2:
            self._end(place, Failure(f"the process of the run {how}, like the one before"))
            return
        _logger.warning(
            "%s: its process %s; a new one continues from the last checkpoint", run.label, how
        )
        run.tries += 1
        # Only what is older than this study is deleted.
        self._compute(place, overwrite=run.overwrite and not run.has_begun)

    def _end(self, place: int, outcome: Any) -> None:
        """Takes the outcome of a run."""
        run = self._running.pop(place)
        if self._display is not None and run.has_begun:
            self._display.end(run)
        self._outcomes.append((run.number, outcome))

    def _take(self, place: int, kind: str, value: Any) -> None:
        """Takes what a process reports."""
        run = self._running.get(place)
        if kind == "log":
            name, level, text = value
            # What is not about a single run is shown once, although several processes report it.
            if text in self._messages:
                return
            if run is None:
                self._messages.add(text)
            _log(text if run is None else f"{run.run.label}: {text}", name, level)
        elif run is not None:
            if kind == "stage":
                run.stage = value
            else:
                run.rounds, run.last_round, run.text = value
                if kind == "begin":
                    run.has_begun, run.began, run.first_round = True, time.monotonic(), run.rounds
            self._show(at_once=kind != "round")

    def _show(self, *, at_once: bool = True) -> None:
        if self._display is not None:
            self._display.update([*self._running.values()], at_once=at_once)


def _log(text: str, name: str, level: int) -> None:
    """Logs a message of another process as if it were of this one."""
    logger = logging.getLogger(name)
    if logger.isEnabledFor(level):
        logger.handle(logging.LogRecord(name, level, "", 0, text, None, None))
