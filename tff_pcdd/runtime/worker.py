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

import atexit
import collections
import contextlib
import errno
import importlib.util
import os
import pathlib
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import grpc
import tensorflow_federated as tff
from tensorflow_federated.proto.v0 import executor_pb2_grpc

from tff_pcdd.runtime import RuntimeStartError, WorkerDiedError

BINARY_VARIABLE = "TFF_PCDD_WORKER_BINARY"

_MAX_MESSAGE_BYTES = 2 * 1000 * 1000 * 1000
CHANNEL_OPTIONS = (
    ("grpc.max_message_length", _MAX_MESSAGE_BYTES),
    ("grpc.max_receive_message_length", _MAX_MESSAGE_BYTES),
    ("grpc.max_send_message_length", _MAX_MESSAGE_BYTES),
    # A worker that is still starting refuses connections; ask again soon rather than in a second,
    # then in two, then in four.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1000),
    # Otherwise two channels to one address share a connection and its state.
    ("grpc.use_local_subchannel_pool", 1),
)
_STDERR_TAIL_BYTES = 4000
_EXECUTORS_KEPT = 10

# Runs in a fresh interpreter, which then becomes the worker. It asks the kernel to kill the worker
# when its parent ends (1 is PR_SET_PDEATHSIG); this survives exec. The same in `preexec_fn` would
# run Python code in a fork of a process full of TensorFlow and gRPC threads, which can deadlock.
_LAUNCHER = f"""
import ctypes, os, sys
ctypes.CDLL(None).prctl(1, {int(signal.SIGKILL)})
if os.getppid() == int(sys.argv[1]):
    try:
        os.execv(sys.argv[2], sys.argv[2:])
    except OSError as error:
        sys.exit(f"{{sys.argv[2]}}: {{error.strerror}}")
"""


def find_binary(path: str | os.PathLike | None = None) -> pathlib.Path:
    """Finds the worker and checks that it can be executed.

    Args:
        path: the worker; by default the one that the environment variable TFF_PCDD_WORKER_BINARY
            names, else the one in TFF's package.

    Raises:
        RuntimeStartError: if it is not there or not executable.
    """
    path = path or os.environ.get(BINARY_VARIABLE)
    if not path:
        package = pathlib.Path(importlib.util.find_spec("tensorflow_federated").origin).parent
        path = package / "data" / "worker_binary"
    path = pathlib.Path(path).absolute()
    if not path.is_file():
        raise RuntimeStartError(f"TFF's worker cannot start: there is no file {path}.")
    if not os.access(path, os.X_OK):
        raise RuntimeStartError(f"TFF's worker cannot start: {path} is not executable.")
    return path


def check_port(port: int, host: str = "") -> None:
    """Raises `RuntimeStartError` if something listens on the port already.

    The worker itself would not notice: gRPC servers share ports (SO_REUSEPORT), and two workers on
    one port get each other's calls.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as probe:
        # Connections of a worker that has just ended do not occupy the port; listeners do.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            why = "it is in use" if error.errno == errno.EADDRINUSE else error.strerror
            raise RuntimeStartError(
                f"A worker cannot listen on port {port} of {host or 'this machine'}: {why}."
            ) from error


def unused_port() -> int:
    with socket.socket() as probe:
        probe.bind(("", 0))
        return probe.getsockname()[1]


class WorkerProcess:
    """A worker process that cannot outlive this one.

    Attributes:
        port: where it listens.
        pid: its process id.
        ended: set as soon as the process has ended.
    """

    def __init__(
        self,
        binary: pathlib.Path,
        port: int,
        arguments: Sequence[str] = (),
        on_end: Callable[[], None] = lambda: None,
    ):
        """Starts the process, without waiting for it to answer.

        Args:
            binary: the program.
            port: passed to it as `--port`.
            arguments: further command line arguments.
            on_end: called from a thread when the process ends.
        """
        self.port = port
        self.ended = threading.Event()
        self._on_end = on_end
        self._owner = os.getpid()
        # Unlinked from the start: nothing is left behind, whatever happens.
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115
        self._command = [
            *(sys.executable, "-I", "-S", "-c", _LAUNCHER, str(self._owner)),
            *(str(binary), f"--port={port}", *arguments),
        ]
        self._process: subprocess.Popen | None = None
        self._start_error: OSError | None = None
        # The kernel takes the *thread* that started a process for its parent. So the thread that
        # starts the worker is the one that waits for its end.
        started = threading.Event()
        threading.Thread(
            target=self._run, args=(started,), name=f"tff-worker-{port}", daemon=True
        ).start()
        started.wait()
        if self._start_error is not None:
            raise RuntimeStartError(f"TFF's worker cannot start: {self._start_error}.")
        self.pid = self._process.pid
        atexit.register(self.stop)

    def _run(self, started: threading.Event) -> None:
        try:
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=self._stderr,
                # Ctrl-C goes to this process, which decides; the worker follows.
                start_new_session=True,
            )
        except OSError as error:
            self._start_error = error
            return
        finally:
            started.set()
        self._process.wait()
        self.ended.set()
        self._on_end()

    def stop(self) -> None:
        """Ends the process and waits for its end. May be called more than once."""
        atexit.unregister(self.stop)
        if os.getpid() != self._owner:
            return  # A fork inherits this object, not the process.
        # It holds nothing worth a gentler signal.
        self._process.kill()
        self.ended.wait(10)

    def stderr_tail(self) -> str:
        """The end of what it wrote on stderr."""
        with contextlib.suppress(OSError, ValueError):
            size = os.fstat(self._stderr.fileno()).st_size
            start = max(0, size - _STDERR_TAIL_BYTES)
            # `pread`, because seeking would move the position at which the worker writes.
            return os.pread(self._stderr.fileno(), _STDERR_TAIL_BYTES, start).decode(
                errors="replace"
            )
        return ""

    def describe_end(self) -> str:
        """Says how it ended, and its last words."""
        code = self._process.returncode
        if code is None:
            how = "is still running"
        elif code < 0:
            how = f"was ended by signal {-code} ({signal.strsignal(-code)})"
        else:
            how = f"exited with status {code}"
        last_words = self.stderr_tail().strip()
        return how + (f"; its last words:\n{last_words}" if last_words else " without a word")


def ping(channel: grpc.Channel, timeout: float) -> bool:
    """Whether a gRPC server answers within `timeout` seconds, busy or not.

    It is asked for a method that it does not have. Its refusal costs it nothing, and proves as much
    as an answer would.
    """
    try:
        channel.unary_unary("/tff_pcdd.Worker/Ping")(b"", timeout=timeout, wait_for_ready=True)
    except grpc.RpcError as error:
        return error.code() == grpc.StatusCode.UNIMPLEMENTED
    except ValueError:  # The channel is closed.
        return False
    return True


def wait_until_ready(
    worker: WorkerProcess, channel: grpc.Channel, timeout: float, binary: pathlib.Path
) -> None:
    """Waits until the worker answers.

    Raises:
        RuntimeStartError: if it ends or stays silent; with the reason, as far as it is known.
    """
    deadline = time.monotonic() + timeout
    while not worker.ended.is_set():
        if ping(channel, timeout=0.2):
            return
        if time.monotonic() > deadline:
            tail = worker.stderr_tail().strip()
            raise RuntimeStartError(
                f"TFF's worker {binary} does not answer on port {worker.port} within {timeout:g} s."
                + (f" It said:\n{tail}" if tail else " It said nothing.")
            )
    reason = f"TFF's worker {binary} {worker.describe_end()}"
    if "GLIBC" in reason:
        reason += (
            "\nThis system's C library is too old for it: use a newer distribution, or the runtime"
            " `inprocess`, which does not need the worker."
        )
    raise RuntimeStartError(reason)


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
