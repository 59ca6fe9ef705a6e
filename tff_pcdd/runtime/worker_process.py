"""TFF's C++ worker as a child process that reports why it failed and ends with its parent.

The worker that ships with TFF always listens on all network interfaces, and its gRPC is not
authenticated. `launcher` keeps it to itself where the kernel allows that.
"""

import atexit
import contextlib
import importlib.util
import os
import pathlib
import shutil
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Sequence

import grpc

from tff_pcdd.runtime import RuntimeStartError, launcher, processes

BINARY_VARIABLE = "TFF_PCDD_WORKER_BINARY"

_MAX_MESSAGE_BYTES = 2 * 1000 * 1000 * 1000
CHANNEL_OPTIONS = (
    ("grpc.max_message_length", _MAX_MESSAGE_BYTES),
    ("grpc.max_receive_message_length", _MAX_MESSAGE_BYTES),
    ("grpc.max_send_message_length", _MAX_MESSAGE_BYTES),
    # A starting worker refuses connections. By default gRPC would retry after 1, 2, 4 ... s.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1000),
    # Otherwise two channels to the same address would share a connection and its state.
    ("grpc.use_local_subchannel_pool", 1),
)
_STDERR_TAIL_BYTES = 4000


def find_binary() -> pathlib.Path:
    """Finds the worker and checks that it is executable.

    It is the value of the environment variable TFF_PCDD_WORKER_BINARY, or the worker in TFF's
    package if that is not set.

    Raises:
        RuntimeStartError: if the file does not exist or is not executable.
    """
    given = os.environ.get(BINARY_VARIABLE)
    if given:
        path = pathlib.Path(given).absolute()
    else:
        package = importlib.util.find_spec("tensorflow_federated")
        if package is None or package.origin is None:
            raise RuntimeStartError("TFF's worker cannot start: TFF is not installed.")
        path = pathlib.Path(package.origin).parent / "data" / "worker_binary"
    if not path.is_file():
        raise RuntimeStartError(f"TFF's worker cannot start: {path} is not a file.")
    if not os.access(path, os.X_OK):
        raise RuntimeStartError(f"TFF's worker cannot start: {path} is not executable.")
    return path


def unused_port() -> int:
    with socket.socket() as probe:
        probe.bind(("", 0))
        return probe.getsockname()[1]


class WorkerProcess:
    """A worker process, which ends with this process at the latest.

    Attributes:
        port: the port on which the worker listens.
        pid: the process id.
        ended: an event that is set when the process has ended.
    """

    def __init__(
        self,
        binary: pathlib.Path,
        port: int,
        arguments: Sequence[str] = (),
        on_end: Callable[[], None] = lambda: None,
        private: pathlib.Path | None = None,
    ):
        """Starts the process without waiting until it is ready.

        Args:
            binary: path of the program.
            port: value of its argument `--port`.
            arguments: further command-line arguments.
            on_end: called in another thread when the process has ended.
            private: gives the process a network of its own, in which the port is reached through
                this Unix socket; its directory is removed when the process has ended.
        """
        self.port = port
        self.ended = threading.Event()
        self._on_end = on_end
        self._owner = os.getpid()
        # The file has no name, so it disappears in any case.
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115
        self._private = private
        arguments = [f"--port={port}", *arguments]
        self._command = launcher.command(str(binary), arguments, port, private)
        self._process: subprocess.Popen  # Set by `_run`, unless the start fails.
        self._start_error: OSError | None = None
        # For PR_SET_PDEATHSIG the parent is the *thread* that started the process. Therefore the
        # thread that starts the worker also waits for its end.
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
                # Ctrl-C must only interrupt this process, which then stops the worker.
                start_new_session=True,
            )
        except OSError as error:
            self._start_error = error
            return
        finally:
            started.set()
        self._process.wait()
        if self._private:
            shutil.rmtree(self._private.parent, ignore_errors=True)
        self.ended.set()
        self._on_end()

    def stop(self) -> None:
        """Kills the process and waits until it has ended. May be called more than once."""
        atexit.unregister(self.stop)
        if os.getpid() != self._owner:
            return  # A fork inherits this object but does not own the worker.
        self._process.kill()
        self.ended.wait(10)
        self._stderr.close()

    def stderr_tail(self) -> str:
        """The last lines that the worker wrote to stderr."""
        with contextlib.suppress(OSError, ValueError):
            size = os.fstat(self._stderr.fileno()).st_size
            start = max(0, size - _STDERR_TAIL_BYTES)
            # `seek` would change the position at which the worker writes; `pread` does not.
            return os.pread(self._stderr.fileno(), _STDERR_TAIL_BYTES, start).decode(
                errors="replace"
            )
        return ""

    def describe_end(self) -> str:
        """How the worker ended, and its last output, as the end of a sentence."""
        code = self._process.returncode
        how = "is still running" if code is None else processes.describe_end(code)
        output = self.stderr_tail().strip()
        return how + (f"; its last output was:\n{output}" if output else " without any output")


def ping(channel: grpc.Channel, timeout: float) -> bool:
    """Whether a gRPC server answers within `timeout` seconds, even if it is busy.

    The call names a method that does not exist. The server rejects it at once, which proves that
    the server is running.
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
        RuntimeStartError: if the worker ends or does not answer; with its output on stderr.
    """
    deadline = time.monotonic() + timeout
    while not worker.ended.is_set():
        if ping(channel, timeout=0.2):
            return
        if time.monotonic() > deadline:
            tail = worker.stderr_tail().strip()
            raise RuntimeStartError(
                f"TFF's worker {binary} did not answer on port {worker.port} within {timeout:g} s."
                + (f" Its output was:\n{tail}" if tail else " It wrote no output.")
            )
    reason = f"TFF's worker {binary} {worker.describe_end()}"
    if "GLIBC" in reason:
        reason += (
            "\nThis system's C library is too old for the worker. Use a newer distribution, or the"
            " runtime `inprocess`, which does not need the worker."
        )
    raise RuntimeStartError(reason)
