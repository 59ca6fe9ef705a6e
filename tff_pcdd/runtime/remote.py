"""Runtime `remote`: workers on this or other machines, which share the clients of a round.

The clients of a round are divided into shares, as in TFF's mergeable execution context (see
`sharing`). TFF's own context is not used, for three reasons:

- it computes client results after the merge, from the arguments, so a round that returns client
  states trains every client twice;
- the calls of TFF's remote executor block its event loop, so the workers run one after the other;
- it merges in order of completion, and repeats calls to a lost worker forever.

The shares depend on the number of workers given at the start, not on how many are alive, and are
merged in order. Therefore results do not depend on which worker computes which share.

A worker is lost if its connection breaks, or if it does not answer a ping within `worker_timeout`
seconds. Busy workers answer too, so this does not limit the duration of a round. The share of a
lost worker is computed by another one. A lost worker that answers again is used again.

Start workers with `python -m tasks.worker`. Their gRPC is neither encrypted nor authenticated:
anyone who can reach a worker can run programs on it.
"""

import atexit
import collections
import functools
import itertools
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow_federated as tff

from tff_pcdd.errors import SettingError
from tff_pcdd.runtime import RuntimeStartError, WorkersLostError
from tff_pcdd.runtime._tff_private import Executor, ExecutorValue
from tff_pcdd.runtime.remote_worker import RemoteWorker, WorkerLost
from tff_pcdd.runtime.sharing import Plan, compile_plan, is_at_clients
from tff_pcdd.runtime.worker import ExecutorFactory


def run_jobs(
    workers: Sequence[RemoteWorker], jobs: Sequence[Callable[[RemoteWorker], Any]]
) -> list:
    """Runs jobs on workers, one job per worker at a time; repeats the jobs of lost workers.

    Returns:
        The results, in the order of the jobs.

    Raises:
        WorkersLostError: if no worker is left.
        Exception: the error of a job.
    """
    waiting = collections.deque(range(len(jobs)))
    results: dict[int, Any] = {}
    errors: list[BaseException] = []
    state = threading.Condition()
    alive = [worker for worker in workers if worker.lost is None]
    serving = len(alive)

    def serve(worker, number):
        nonlocal serving
        try:
            while True:
                if number is None:
                    with state:
                        # A job may return to the queue if another worker is lost.
                        state.wait_for(lambda: waiting or errors or len(results) == len(jobs))
                        if errors or len(results) == len(jobs):
                            return
                        number = waiting.popleft()
                try:
                    result = jobs[number](worker)
                except WorkerLost:
                    with state:
                        waiting.appendleft(number)
                    return
                with state:
                    results[number] = result
                    state.notify_all()
                number = None
        except BaseException as error:
            errors.append(error)
        finally:
            with state:
                serving -= 1
                state.notify_all()

    # Every worker is given its first job, so that a fast one cannot take two before others start.
    for worker, number in [(worker, waiting.popleft() if waiting else None) for worker in alive]:
        threading.Thread(target=serve, args=(worker, number), daemon=True).start()
    with state:
        state.wait_for(lambda: serving == 0 or len(results) == len(jobs) or errors)
    if errors:
        raise errors[0]
    if len(results) < len(jobs):
        reasons = "; ".join(f"{worker.address}: {worker.lost}" for worker in workers)
        raise WorkersLostError(f"No worker is left ({reasons}).")
    return [results[number] for number in range(len(jobs))]


class _Value(ExecutorValue):
    """A value in this process; it is sent when it is known which workers need it."""

    def __init__(self, value: Any, type_signature: tff.Type):
        self.value = value
        self._type_signature = type_signature

    @property
    def type_signature(self):
        return self._type_signature

    @property
    def reference(self):
        return self.value

    async def compute(self):
        return self.value


class SharingExecutor(Executor):
    """Runs `Plan`s for a fixed number of clients, which it divides among workers."""

    def __init__(self, workers: Sequence[RemoteWorker], num_clients: int):
        self._workers = workers
        self._num_clients = num_clients

    def close(self):
        pass

    async def create_value(self, value, type_spec=None):
        return _Value(value, type_spec)

    async def create_struct(self, elements):
        elements = tff.structure.to_elements(tff.structure.from_container(elements))
        return _Value(
            tff.structure.Struct([(name, value.value) for name, value in elements]),
            tff.StructType([(name, value.type_signature) for name, value in elements]),
        )

    async def create_selection(self, source, index):
        return _Value(source.value[index], source.type_signature[index])

    async def create_call(self, comp, arg=None):
        plan, argument = comp.value, None if arg is None else arg.value
        return _Value(self._run(plan, argument), comp.type_signature.result)

    def _run(self, plan: Plan, argument: Any) -> Any:
        if plan.local is None:
            whole = functools.partial(
                RemoteWorker.run,
                computation=plan.whole,
                argument=argument,
                num_clients=self._num_clients,
            )
            return run_jobs(self._workers, [whole])[0]

        parameter_type = plan.type_signature.parameter
        shares = [
            functools.partial(
                RemoteWorker.run,
                computation=plan.local,
                argument=_slice_clients(argument, parameter_type, begin, end),
                num_clients=end - begin,
            )
            for begin, end in _share(self._num_clients, len(self._workers))
        ]
        results = run_jobs(self._workers, shares)
        finish = plan.finish(len(shares))
        server_results = ()
        if finish is not None:
            rest = functools.partial(
                RemoteWorker.run,
                computation=finish,
                argument=[plan.server_argument(argument), [sums for sums, _ in results]],
                num_clients=0,
            )
            (server_results,) = run_jobs(self._workers, [rest])
        return plan.assemble([returned for _, returned in results], server_results)


def _share(num_clients: int, num_shares: int) -> list[tuple[int, int]]:
    """Divides clients into ranges of nearly equal length; none is empty if there are clients."""
    num_shares = max(1, min(num_shares, num_clients))
    cuts = [num_clients * i // num_shares for i in range(num_shares + 1)]
    return list(itertools.pairwise(cuts))


def _slice_clients(value: Any, type_spec: tff.Type, begin: int, end: int) -> Any:
    """The argument of a computation, restricted to a range of clients."""
    if isinstance(type_spec, tff.StructType):
        return tff.structure.Struct(
            [
                (name, _slice_clients(value[i], element, begin, end))
                for i, (name, element) in enumerate(tff.structure.iter_elements(type_spec))
            ]
        )
    return value[begin:end] if is_at_clients(type_spec) else value


class RemoteContext(tff.framework.SyncExecutionContext):
    """An execution context that uses several workers.

    Attributes:
        workers: the `RemoteWorker`s.
    """

    def __init__(self, workers: Sequence[RemoteWorker], default_num_clients: int = 0):
        self.workers = workers

        def make_executor(cardinalities):
            return SharingExecutor(workers, cardinalities.get(tff.CLIENTS, default_num_clients))

        super().__init__(
            executor_fn=ExecutorFactory(make_executor),
            compiler_fn=compile_plan,
            transform_args=tff.tensorflow.transform_args,
            transform_result=tff.tensorflow.transform_result,
        )
        # Otherwise the process would wait for running calls at exit.
        atexit.register(self.close)

    def close(self) -> None:
        """Ends the connections; the workers keep running."""
        atexit.unregister(self.close)
        for worker in self.workers:
            worker.close()


def _check_addresses(workers: Sequence[str]) -> None:
    if isinstance(workers, str) or not workers:
        raise SettingError("workers", workers or None, "name at least one worker as host:port")
    given = ",".join(workers)
    if len(set(workers)) < len(workers):
        raise SettingError("workers", given, "a worker is named twice")
    for address in workers:
        host, _, port = address.rpartition(":")
        if not host or not port.isdecimal():
            raise SettingError("workers", given, f"{address!r} is not of the form host:port")


def create_context(
    *,
    workers: Sequence[str],
    worker_timeout: float = 60.0,
    start_timeout: float = 30.0,
    default_num_clients: int = 0,
) -> RemoteContext:
    """Connects to workers that were started with `python -m tasks.worker`.

    Args:
        workers: addresses of the workers, "host:port".
        worker_timeout: time in seconds after which a worker that does not answer pings is lost.
            It does not limit the duration of a round.
        start_timeout: time in seconds within which every worker has to answer at the start.
        default_num_clients: number of clients if no argument is placed at clients.

    Returns:
        A `tff.framework.SyncContext` with a method `close`. Its calls raise
        `tff_pcdd.runtime.WorkersLostError` when no worker is left.

    Raises:
        SettingError: `workers` or `worker_timeout` cannot be used.
        RuntimeStartError: if a worker does not answer.
    """
    _check_addresses(workers)
    if worker_timeout <= 0:
        raise SettingError("worker_timeout", worker_timeout, "must be greater than 0")

    connections = [RemoteWorker(address, worker_timeout) for address in workers]
    deadline = time.monotonic() + start_timeout
    while missing := [worker.address for worker in connections if worker.lost is not None]:
        if time.monotonic() > deadline:
            for worker in connections:
                worker.close()
            raise RuntimeStartError(
                f"No answer within {start_timeout:g} s from worker {', '.join(missing)}. Start it "
                "with `python -m tasks.worker --port=...`, and check that the port is reachable."
            )
        time.sleep(0.02)
    return RemoteContext(connections, default_num_clients)
