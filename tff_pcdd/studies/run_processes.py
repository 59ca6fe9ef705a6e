"""Computes several runs of a study at the same time, in processes that Ray starts."""

from __future__ import annotations

import collections
import contextlib
import itertools
import logging
import textwrap
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tff_pcdd import stages
from tff_pcdd.experiment import refusals
from tff_pcdd.runtime import RuntimeStartError
from tff_pcdd.runtime.ray import cluster
from tff_pcdd.studies import cluster_nodes, run_process
from tff_pcdd.studies.parallel import ParallelOptions
from tff_pcdd.studies.run_process import Checked, Failure, Job, Surroundings
from tff_pcdd.studies.run_reports import News
from tff_pcdd.training import ExperimentConfig, RunOptions, trackers
from tff_pcdd.training.start import finished_result

if TYPE_CHECKING:
    from tff_pcdd.studies.study import StudyRun

_logger = logging.getLogger(__name__)

# Seconds within which a signal is noticed.
_PATIENCE = 0.2
# Only settings, summaries and messages are shared. Ray accepts hardly less than this.
_OBJECT_STORE_BYTES = 100_000_000


class RunProcesses:
    """Computes runs in processes of their own; starts Ray for the first run that needs it.

    Each process computes one run after the other, so it imports libraries only once; this process
    does not import TensorFlow. As a context manager, this object ends all processes that it has
    started.

    Args:
        parallel: how many runs are computed at the same time, and where.
        options: how a run is computed.
        directory: the directory of the study.
        runs: all runs of the study.
        overwrite: whether earlier results are deleted.
    """

    def __init__(
        self,
        parallel: ParallelOptions,
        options: RunOptions | None,
        directory: Path,
        runs: Sequence[StudyRun],
        *,
        overwrite: bool,
    ):
        self._parallel = parallel
        self._options = options or RunOptions()
        self._directory = directory
        # About settings, which all runs with the same settings would repeat.
        self._warnings: set[str] = set()
        self._runs = runs
        self._overwrite = overwrite
        self._stack = contextlib.ExitStack()
        self._finished = 0
        self._outcomes: collections.deque[tuple[int, Any]] = collections.deque()
        # The runs that are being computed, by Ray's references to their outcomes.
        self._computing: dict[Any, tuple[int, Job]] = {}
        # Those of them that have begun to write, and those whose first process has died.
        self._begun: set[int] = set()
        self._tried: set[int] = set()
        # Which of the runs at the same time they are.
        self._places: dict[int, int] = {}
        self._connected = False
        self._prepared = False
        self._queue: Any = None

    def __enter__(self) -> RunProcesses:
        return self

    def __exit__(self, *exc_info: Any) -> bool | None:
        return self._stack.__exit__(*exc_info)

    @property
    def busy(self) -> int:
        """The number of runs whose outcomes have not been returned yet."""
        return len(self._computing) + len(self._outcomes)

    @property
    def free(self) -> bool:
        """Whether another run can be started."""
        return self.busy < self._parallel.parallel_runs

    def check(self, configs: Sequence[ExperimentConfig]) -> None:
        """Checks the settings of runs, in the processes that will compute them.

        All of them import TensorFlow for that, at the same time.

        Args:
            configs: the settings of the runs that are not finished.

        Raises:
            SettingError: a run or the cluster cannot be used; names all methods that are refused.
            RuntimeStartError: Ray cannot be started or reached, or its processes end.
        """
        if not configs:
            return
        self._connect()
        stages.enter("importing TensorFlow")
        number = min(len(configs), self._parallel.parallel_runs)
        check = self._needs(run_process.check_on_ray)
        dumps, shares = self._ray.cloudpickle.dumps, [slice(i, None, number) for i in range(number)]
        places = {check.remote(self._surroundings, dumps(configs[s])): s for s in shares}
        # Later, so that Ray's first processes are those that import TensorFlow.
        self._open_queue()
        found: list[Checked] = [Checked(None, ())] * len(configs)
        left = [*places]
        while left:
            ready, left = self._ray.wait(left, timeout=_PATIENCE)
            for reference in ready:
                found[places[reference]] = self._found(reference)
        stages.leave()
        # They would not be seen where they were found, in other processes.
        for warning in itertools.chain(*(run.warnings for run in found)):
            if warning not in self._warnings:
                self._warnings.add(warning)
                _logger.warning("%s", warning)
        refusals.for_all(_raise, zip(configs, found, strict=True), lambda run: run[0].algorithm)

    def _found(self, reference: Any) -> Sequence[Checked]:
        """What a process has found about each of its runs."""
        try:
            found = self._ray.get(reference)
        except self._ray.exceptions.RayError as error:
            reason = textwrap.shorten(str(error), 500, placeholder=" …")
            raise RuntimeStartError(f"a process for the runs has ended: {reason}") from error
        if isinstance(found, Failure):
            raise found.error or RuntimeError(found.text)
        return found

    def start(self, number: int, run: StudyRun, label: str) -> None:
        """Starts to compute a run, unless it is already finished.

        Args:
            number: its position in the study.
            run: the run.
            label: its name in the progress display.

        Raises:
            SettingError: the cluster cannot compute the runs.
            RuntimeStartError: Ray cannot be started or reached.
        """
        try:
            outcome: Any = finished_result(
                run.config, run.folder, self._options, overwrite=self._overwrite, **run.limits
            )
        except Exception as error:
            outcome = Failure.of(error)
        if outcome is not None:
            self._outcomes.append((number, outcome))
            return
        self._connect()
        self._open_queue()
        if not self._prepared:
            trackers.prepare(self._options.tracker_names())
            self._prepared = True
        place = min(set(range(self._parallel.parallel_runs)).difference(self._places.values()))
        self._places[number] = place
        cores = self._parallel.cores(place)
        limits = run.limits
        job = Job(run.config, run.folder, self._options, self._overwrite, label, cores, limits)
        self._submit(number, job)
        self._bars.add(number, label, run.config.training.rounds)

    def wait(self, seconds: float | None = None) -> tuple[int, Mapping[str, Any] | Failure] | None:
        """Waits until a run ends, and returns its number and its summary or why it failed.

        Args:
            seconds: the longest time to wait; None waits until a run ends.

        Returns:
            The run's number and outcome; None if no run has ended in this time.
        """
        deadline = None if seconds is None else time.monotonic() + seconds
        while not self._outcomes:
            if deadline is not None and time.monotonic() > deadline:
                return None
            ready, _ = self._ray.wait([self._news, *self._computing], timeout=_PATIENCE)
            for reference in ready:
                if reference == self._news:
                    self._show(self._next_news())
                else:
                    self._end(reference)
        return self._outcomes.popleft()

    def count(self) -> None:
        """Counts a run as done in the progress display."""
        self._finished += 1
        if self._connected:
            self._bars.count()

    def _connect(self) -> None:
        """Starts Ray or connects to the cluster, unless that has been done."""
        if self._connected:
            return
        parallel = self._parallel
        address, cpus = parallel.ray_address, parallel.cpus()
        if not cluster.is_open():
            stages.enter("starting Ray" if address is None else "connecting to Ray")
        self._stack.enter_context(
            cluster.connected(
                address,
                environment=parallel.cluster_environment(),
                object_store_bytes=_OBJECT_STORE_BYTES,
            )
        )
        self._stack.callback(self._forget)
        import ray

        from tff_pcdd.studies.run_bars import RunBars

        gpus = parallel.gpus(ray.cluster_resources().get("GPU", 0.0))
        if address is not None:
            cluster_nodes.check(address, self._directory, cpus=cpus, gpus=gpus)
        self._ray: Any = ray
        self._needs: Any = ray.remote(num_cpus=cpus, num_gpus=gpus, max_retries=0)
        self._compute: Any = self._needs(run_process.compute_on_ray)
        self._surroundings: Any = ray.put(
            Surroundings.of_this_process(self._options, parallel.environment(), max(1, int(cpus)))
        )
        self._bars = RunBars(
            len(self._runs), self._finished, parallel.parallel_runs, shown=self._options.progress
        )
        self._stack.callback(self._bars.close)
        self._connected = True

    def _open_queue(self) -> None:
        """Starts the process that passes news on, unless that has been done."""
        if self._queue is not None:
            return
        from ray.util.queue import Queue
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        # On this machine: if another one is lost, only its runs are.
        node = self._ray.get_runtime_context().get_node_id()
        here = NodeAffinitySchedulingStrategy(node, soft=False)
        queue: Any = Queue(actor_options={"num_cpus": 0, "scheduling_strategy": here})
        self._queue = queue.actor
        self._news = self._queue.get.remote()

    def _forget(self) -> None:
        """Drops all references to Ray's objects, which must not outlive the connection."""
        self._computing.clear()
        self._queue = self._news = self._compute = self._surroundings = None

    def _submit(self, number: int, job: Job) -> None:
        pickled = self._ray.cloudpickle.dumps(job)
        reference = self._compute.remote(self._surroundings, number, pickled, self._queue)
        self._computing[reference] = number, job

    def _end(self, reference: Any) -> None:
        """Takes the outcome of a run, after all news of it; or tries the run again."""
        number, job = self._computing.pop(reference)
        outcome, lost = None, False
        try:
            outcome = self._ray.get(reference)
        except self._ray.exceptions.RayError as error:
            outcome, lost = Failure.of_process(error), True
        mark = News(number, "mark")
        self._queue.put_nowait.remote(mark)
        while (news := self._next_news()) != mark:
            self._show(news)
        if lost and number not in self._tried:
            self._tried.add(number)
            _logger.warning(
                "%s: its process has ended; a new one continues from the last checkpoint", job.label
            )
            # Only what is older than this study is deleted.
            overwrite = job.overwrite and number not in self._begun
            self._submit(number, job._replace(overwrite=overwrite))
            return
        self._begun.discard(number)
        self._tried.discard(number)
        self._bars.end(number)
        del self._places[number]
        self._outcomes.append((number, outcome))

    def _next_news(self) -> News:
        """The next news, for which it may have to wait.

        Raises:
            RuntimeStartError: the queue of the news is lost.
        """
        try:
            news = self._ray.get(self._news)
        except self._ray.exceptions.RayError as error:
            raise RuntimeStartError(f"the Ray cluster is lost: {type(error).__name__}") from error
        self._news = self._queue.get.remote()
        return news

    def _show(self, news: News) -> None:
        """Shows an event of a run."""
        number, kind, value = news
        if kind == "log":
            repeated = value.getMessage() in self._warnings
            if not repeated and logging.getLogger(value.name).isEnabledFor(value.levelno):
                logging.getLogger(value.name).handle(value)
        elif number not in self._places:
            # It comes late, from a process that has died.
            return
        elif kind == "stage":
            self._bars.stage(number, value)
        elif kind == "begin":
            self._begun.add(number)
            self._bars.begin(number, *value)
        elif kind == "round":
            self._bars.round(number, *value)


def _raise(run: tuple[ExperimentConfig, Checked]) -> None:
    """Raises why a run is refused, if it is."""
    if run[1].refusal is not None:
        raise run[1].refusal
