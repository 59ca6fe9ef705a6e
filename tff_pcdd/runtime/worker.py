"""Runtime `tff`: the C++ worker that ships with TFF, with managed start-up and shutdown.

When TFF itself starts this worker, the worker inherits the standard streams, so a pipe such as
`train | tee log` never ends. TFF also waits forever for a worker that cannot start, and for the
answer of a worker that was killed. Here the worker

- inherits no streams; its output on stderr is kept and quoted in error messages;
- is killed by the kernel when the process that started it ends for any reason;
- must answer within a deadline; otherwise the reason is reported;
- is monitored: if it dies, the current call fails.

The worker's gRPC is not authenticated, and it always listens on all network interfaces. So it runs
in a network of its own (`launcher`), which only this user's processes can reach. Where the
kernel does not allow that, as in some containers, it starts only if `insecure` is set.
"""

import collections
import contextlib
import pathlib
import tempfile
from collections.abc import Callable
from typing import Any

import grpc
import tensorflow_federated as tff

from tff_pcdd.errors import SettingError
from tff_pcdd.runtime import WorkerDiedError, launcher
from tff_pcdd.runtime._native import compile_to_native
from tff_pcdd.runtime._tff_private import end_event_loop, executor_pb2_grpc
from tff_pcdd.runtime.processes import temporary_directory
from tff_pcdd.runtime.worker_process import (
    CHANNEL_OPTIONS,
    WorkerProcess,
    find_binary,
    unused_port,
    wait_until_ready,
)

_EXECUTORS_KEPT = 10
# Seconds within which a worker has to answer.
_START_TIMEOUT = 30.0
# Any port will do: nothing else listens in the worker's own network.
_PRIVATE_PORT = 50051
# The path of a Unix socket has at most 107 bytes.
_LONGEST_TEMP = 80


class GuardedStub(tff.framework.RemoteExecutorStub):
    """The calls to a worker; lets the runtime translate call errors.

    TFF's own stub makes its caller repeat every call forever if the worker is gone. It also watches
    the state of the channel in a thread, which fails when the channel is closed.
    """

    def __init__(self, channel: grpc.Channel, explain: Callable[[Exception], Exception]):
        """Wraps a channel.

        Args:
            channel: the connection to the worker.
            explain: maps the error of a call to the error to raise: either the same error, or one
                that describes how the worker ended.
        """
        self._stub = executor_pb2_grpc.ExecutorGroupStub(channel)
        self._explain = explain

    def _call(self, method: Callable[[Any], Any], request: Any) -> Any:
        try:
            return method(request)
        # gRPC raises `ValueError` for a call on a closed channel.
        except (grpc.RpcError, ValueError) as error:
            raise self._explain(error) from error

    def get_executor(self, request):
        return self._call(self._stub.GetExecutor, request)

    def create_value(self, request):
        return self._call(self._stub.CreateValue, request)

    def create_struct(self, request):
        return self._call(self._stub.CreateStruct, request)

    def create_call(self, request):
        return self._call(self._stub.CreateCall, request)

    def create_selection(self, request):
        return self._call(self._stub.CreateSelection, request)

    def compute(self, request):
        return self._call(self._stub.Compute, request)

    # The garbage collector disposes of values at any time and in any thread, so these calls must
    # not wait. If the worker is gone, there is nothing to dispose of.
    def dispose(self, request):
        with contextlib.suppress(ValueError):
            self._stub.Dispose.future(request, timeout=60)

    def dispose_executor(self, request):
        with contextlib.suppress(ValueError):
            self._stub.DisposeExecutor.future(request, timeout=60)


class ExecutorFactory(tff.framework.ExecutorFactory):
    """Keeps one executor per number of clients, and closes those that it evicts.

    TFF's own factory evicts the least recently used executor without telling the worker, which then
    keeps its values forever.
    """

    def __init__(self, make_executor: Callable[[dict], Any]):
        self._make_executor = make_executor
        self._executors: collections.OrderedDict[tuple, Any] = collections.OrderedDict()

    def create_executor(self, cardinalities):
        key = self._key(cardinalities)
        if key not in self._executors:
            self._executors[key] = self._make_executor(dict(cardinalities))
            if len(self._executors) > _EXECUTORS_KEPT:
                _, oldest = self._executors.popitem(last=False)
                oldest.close()
        self._executors.move_to_end(key)
        return self._executors[key]

    def clean_up_executor(self, cardinalities):
        executor = self._executors.pop(self._key(cardinalities), None)
        if executor is not None:
            executor.close()

    @staticmethod
    def _key(cardinalities):
        return tuple(sorted((str(placement), n) for placement, n in cardinalities.items()))


class LocalWorkerContext(tff.framework.SyncExecutionContext):
    """An execution context that owns a local worker; `close` ends the worker."""

    def __init__(self, worker: WorkerProcess, channel: grpc.Channel):
        self.worker = worker
        self._channel = channel
        self._closed = False
        stub = GuardedStub(channel, self._explain)

        def make_executor(cardinalities):
            cardinalities.setdefault(tff.CLIENTS, 0)
            # By default the worker keeps unused values until there are twenty of them.
            executor = tff.framework.RemoteExecutor(stub, dispose_batch_size=1)
            executor.set_cardinalities(cardinalities)
            return executor

        super().__init__(
            executor_fn=ExecutorFactory(make_executor),
            compiler_fn=compile_to_native,
            transform_args=tff.tensorflow.transform_args,
            transform_result=tff.tensorflow.transform_result,
        )

    def _explain(self, error: Exception) -> Exception:
        # The connection breaks shortly before the end of the process is noticed.
        gone = self.worker.ended.wait(1.0 if is_broken_connection(error) else 0.0)
        if self._closed:
            return WorkerDiedError("The runtime `tff` was closed.")
        if gone:
            return WorkerDiedError(f"TFF's worker {self.worker.describe_end()}")
        return error

    def close(self) -> None:
        """Ends the worker. A running call fails with `WorkerDiedError`."""
        self._closed = True
        self.worker.stop()
        self._channel.close()
        end_event_loop(self)


def is_broken_connection(error: Exception) -> bool:
    """Whether a call failed because the worker was unreachable or the channel closed."""
    if isinstance(error, ValueError):
        return True
    code = error.code() if isinstance(error, grpc.Call) else None
    return code in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED)


def create_context(*, insecure: bool = False) -> LocalWorkerContext:
    """Starts a worker on this machine and creates an execution context that uses it.

    Args:
        insecure: whether the worker may listen on all network interfaces where it cannot have a
            network of its own.

    Raises:
        RuntimeStartError: if the worker cannot start; the message contains the reason.
        SettingError: if it cannot have a network of its own, and `insecure` is not set.
    """
    path = find_binary()
    if launcher.can_isolate():
        # The directory can be entered by this user only.
        place = temporary_directory(_LONGEST_TEMP)
        private = pathlib.Path(tempfile.mkdtemp(prefix="tff_pcdd_", dir=place)) / "worker"
        port, address = _PRIVATE_PORT, f"unix:{private}"
    elif insecure:
        private, port = None, unused_port()
        address = f"127.0.0.1:{port}"
    else:
        raise SettingError(
            "insecure",
            None,
            "this system does not give TFF's worker a network of its own, so it would listen on "
            "every network interface, without authentication; set `insecure` if only trusted "
            "machines can reach this one, or choose runtime=inprocess",
        )
    # Connections to this machine must not go through a proxy set in the environment.
    channel = grpc.insecure_channel(address, (*CHANNEL_OPTIONS, ("grpc.enable_http_proxy", 0)))
    worker = WorkerProcess(
        path,
        port,
        # All clients of a cohort at the same time.
        ["--max_concurrent_computation_calls=-1"],
        # Closing the channel ends calls whose connection did not notice the end of the worker.
        on_end=channel.close,
        private=private,
    )
    try:
        wait_until_ready(worker, channel, _START_TIMEOUT, path)
    except BaseException:
        worker.stop()
        channel.close()
        raise
    return LocalWorkerContext(worker, channel)
