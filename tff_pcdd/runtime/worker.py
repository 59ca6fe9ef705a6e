"""Runtime `tff`: the C++ worker that ships with TFF, with an honest life cycle.

TFF starts this worker by itself, but lets it inherit the standard streams (a pipe such as
`train | tee log` then never ends), waits without a deadline for one that cannot start, and for ever
for the answer of one that was killed. Here the worker

- inherits no stream: what it says on stderr is kept and quoted when something goes wrong;
- ends with the process that started it, however that process ends (the kernel sees to it);
- has a deadline to answer, after which the reason is reported;
- is watched: when it dies, the call under way fails.

The worker offers unauthenticated gRPC and listens on all network interfaces, as it does when TFF
starts it: it knows no other way. On a machine that strangers can reach, prefer `inprocess`.
"""

import collections
import contextlib
import os
from collections.abc import Callable
from typing import Any

import grpc
import tensorflow_federated as tff

from tff_pcdd.runtime import WorkerDiedError
from tff_pcdd.runtime._tff_private import executor_pb2_grpc
from tff_pcdd.runtime.process import (
    CHANNEL_OPTIONS,
    WorkerProcess,
    check_port,
    find_binary,
    unused_port,
    wait_until_ready,
)

_EXECUTORS_KEPT = 10


class GuardedStub(tff.framework.RemoteExecutorStub):
    """The calls to a worker, with a say for the runtime when one fails.

    TFF's own stub has every call repeated for ever when the worker is gone. It also follows the
    state of the channel in a thread, which gRPC lets fail when the channel is closed.
    """

    def __init__(self, channel: grpc.Channel, explain: Callable[[Exception], Exception]):
        """Wraps a channel.

        Args:
            channel: the connection to the worker.
            explain: given the error of a call, returns the error to raise: one that tells about the
                worker's end, or the given one.
        """
        self._stub = executor_pb2_grpc.ExecutorGroupStub(channel)
        self._explain = explain

    def _call(self, method: Callable[[Any], Any], request: Any) -> Any:
        try:
            return method(request)
        # `ValueError` is gRPC's answer to a call on a channel that was closed.
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

    # Values are disposed of by the garbage collector, at any time and in any thread. It must not
    # wait for a worker, and where the worker is gone there is nothing left to dispose of.
    def dispose(self, request):
        with contextlib.suppress(ValueError):
            self._stub.Dispose.future(request, timeout=60)

    def dispose_executor(self, request):
        with contextlib.suppress(ValueError):
            self._stub.DisposeExecutor.future(request, timeout=60)


class ExecutorFactory(tff.framework.ExecutorFactory):
    """Keeps one executor on the worker per number of clients, and closes those it drops.

    (TFF's own factory forgets the least recently used one without telling the worker, which keeps
    its values for ever.)
    """

    def __init__(self, make_executor: Callable[[dict], Any]):
        self._make_executor = make_executor
        self._executors = collections.OrderedDict()

    def create_executor(self, cardinalities):
        key = tuple(sorted((str(placement), n) for placement, n in cardinalities.items()))
        if key not in self._executors:
            self._executors[key] = self._make_executor(dict(cardinalities))
            if len(self._executors) > _EXECUTORS_KEPT:
                _, oldest = self._executors.popitem(last=False)
                oldest.close()
        self._executors.move_to_end(key)
        return self._executors[key]

    def clean_up_executor(self, cardinalities):
        key = tuple(sorted((str(placement), n) for placement, n in cardinalities.items()))
        executor = self._executors.pop(key, None)
        if executor is not None:
            executor.close()


def compile_to_native(
    computation: tff.framework.ConcreteComputation,
) -> tff.framework.ConcreteComputation:
    """Compiles a computation to what TFF's workers understand.

    They know no secure aggregation. It is computed in the clear, with its bounds and moduli.
    """
    return tff.backends.native.desugar_and_transform_to_native(
        tff.backends.test.replace_secure_intrinsics_with_bodies(computation)
    )


class RemoteExecutorContext(tff.framework.SyncExecutionContext):
    """TFF's execution context on one worker, reached through a stub."""

    def __init__(self, stub: tff.framework.RemoteExecutorStub, default_num_clients: int = 0):
        def make_executor(cardinalities):
            cardinalities.setdefault(tff.CLIENTS, default_num_clients)
            # Values that are no longer needed would wait on the worker for nineteen others.
            executor = tff.framework.RemoteExecutor(stub, dispose_batch_size=1)
            executor.set_cardinalities(cardinalities)
            return executor

        super().__init__(
            executor_fn=ExecutorFactory(make_executor),
            compiler_fn=compile_to_native,
            transform_args=tff.tensorflow.transform_args,
            transform_result=tff.tensorflow.transform_result,
        )


class LocalWorkerContext(RemoteExecutorContext):
    """TFF's execution context on a worker of its own, which it ends with `close`.

    Attributes:
        worker: the `WorkerProcess`.
    """

    def __init__(self, worker: WorkerProcess, channel: grpc.Channel, default_num_clients: int = 0):
        self.worker = worker
        self._channel = channel
        self._closed = False
        super().__init__(GuardedStub(channel, self._explain), default_num_clients)

    def _explain(self, error: Exception) -> Exception:
        # The connection breaks a moment before the process is known to have ended.
        gone = self.worker.ended.wait(1.0 if is_broken_connection(error) else 0.0)
        if self._closed:
            return WorkerDiedError("The runtime `tff` was closed.")
        if gone:
            return WorkerDiedError(f"TFF's worker {self.worker.describe_end()}")
        return error

    def close(self) -> None:
        """Ends the worker. A call under way fails with `WorkerDiedError`."""
        self._closed = True
        self.worker.stop()
        self._channel.close()


def is_broken_connection(error: Exception) -> bool:
    """Whether a call failed because its worker could not be reached (or its channel was closed)."""
    if isinstance(error, ValueError):
        return True
    code = error.code() if isinstance(error, grpc.Call) else None
    return code in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED)


def create_context(
    *,
    binary: str | os.PathLike | None = None,
    port: int | None = None,
    start_timeout: float = 30.0,
    max_concurrent_computation_calls: int = -1,
    default_num_clients: int = 0,
) -> LocalWorkerContext:
    """Starts a worker on this machine and builds the execution context on it.

    Args:
        binary: the worker; by default the environment variable TFF_PCDD_WORKER_BINARY, else the one
            in TFF's package.
        port: where it listens; a free port by default.
        start_timeout: the seconds within which it has to answer.
        max_concurrent_computation_calls: how many clients it computes at the same time at most; all
            of them if not positive. Fewer need less memory.
        default_num_clients: the number of clients where the arguments do not tell it.

    Returns:
        A `tff.framework.SyncContext` with a method `close`.

    Raises:
        RuntimeStartError: if the worker cannot start; the message names the reason.
    """
    path = find_binary(binary)
    if port is None:
        port = unused_port()
    check_port(port)
    # A proxy named in the environment must not stand between this process and its own worker.
    options = (*CHANNEL_OPTIONS, ("grpc.enable_http_proxy", 0))
    channel = grpc.insecure_channel(f"127.0.0.1:{port}", options)
    worker = WorkerProcess(
        path,
        port,
        [f"--max_concurrent_computation_calls={max_concurrent_computation_calls}"],
        # Calls whose connection does not notice the death of the worker end with the channel.
        on_end=channel.close,
    )
    try:
        wait_until_ready(worker, channel, start_timeout, path)
    except BaseException:
        worker.stop()
        channel.close()
        raise
    return LocalWorkerContext(worker, channel, default_num_clients)
