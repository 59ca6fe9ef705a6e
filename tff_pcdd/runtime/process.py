"""TFF's C++ worker as a process: it starts or says why not, and cannot outlive its user.

The worker that TFF ships takes a port, and listens there on all network interfaces: it knows no
other way. Its gRPC is not authenticated.
"""

import atexit
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

import grpc

from tff_pcdd.runtime import RuntimeStartError

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
