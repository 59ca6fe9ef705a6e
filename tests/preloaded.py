"""Programs of the tests that start with everything imported.

`Process` is a `subprocess.Popen` of `python -m MODULE FLAG…` that is forked from a process which
has imported TensorFlow, TFF and this package already: that takes longer than most programs need for
the rest. All else is as in a process that is started: its streams, environment, working directory
and signals.

Run as a program, this is the process that is forked:

    python -m tests.preloaded DESCRIPTOR

reads requests from a socket until that is closed.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import gc
import importlib
import os
import pathlib
import pickle
import pkgutil
import runpy
import socket
import struct
import subprocess
import sys
import tempfile
from collections.abc import Mapping

_ROOT = pathlib.Path(__file__).resolve().parents[1]
_IMPORTED = (
    "tensorflow",
    "tensorflow_federated",
    "matplotlib.backends.backend_agg",
    "matplotlib.figure",
    "tensorboard.summary",
    "jinja2",
    "tff_pcdd.training.run",
    "tff_pcdd.training.plots",
    "tff_pcdd.runtime.inprocess",
    *(f"tff_pcdd.cli.{name}" for name in ("compare", "evaluate", "export", "sweep", "train")),
)
# Packages of which all modules are imported: most of them when a program looks up what there is.
_WHOLE = ("data", "evaluation", "federated", "methods", "models", "report", "results", "studies")
_STATUS = struct.Struct("i")


@functools.cache
def _server() -> socket.socket:
    """A connection to the process that is forked, which ends with this process."""
    ours, its = socket.socketpair()
    command = [sys.executable, "-m", "tests.preloaded", str(its.fileno())]
    # As in the programs' own processes; see the fixture `start`.
    environment = {**os.environ, "PYTHONUNBUFFERED": "1", "OMP_NUM_THREADS": "1"}
    with its:
        process = subprocess.Popen(
            command,
            cwd=_ROOT,
            # Programs set this level; TensorFlow reads it when it is loaded.
            env={**environment, "TF_CPP_MIN_LOG_LEVEL": "3", "PYTHONPATH": str(_ROOT)},
            stdin=subprocess.DEVNULL,
            # As the streams of the programs, which cannot seek. Nothing is written to them here.
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            pass_fds=[its.fileno()],
        )

    def end():
        ours.close()
        process.wait()

    atexit.register(end)
    return ours


def run(module: str, *, cwd: pathlib.Path, env: Mapping[str, str]) -> str:
    """What `python -m MODULE` prints, in a directory; it has to succeed."""
    with Process(
        [module],
        cwd=cwd,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        output, errors = process.communicate(timeout=300)
    assert process.returncode == 0, errors
    return output


class Process(subprocess.Popen):
    """`python -m MODULE FLAG…`, with everything imported.

    Args:
        args: the module and the flags.
        options: as for `Popen`; `cwd`, `env` and the three streams are required. Of the others,
            `text` and `start_new_session` have an effect.
    """

    def _execute_child(
        self,
        args,
        executable,
        preexec_fn,
        close_fds,
        pass_fds,
        cwd,
        env,
        startupinfo,
        creationflags,
        shell,
        p2cread,
        p2cwrite,
        c2pread,
        c2pwrite,
        errread,
        errwrite,
        restore_signals,
        gid,
        gids,
        uid,
        umask,
        start_new_session,
        *others,
    ):
        """Called by Popen: sends a request instead of starting a program."""
        request = pickle.dumps((list(map(str, args)), str(cwd), dict(env), start_new_session))
        self._answers, its = socket.socketpair()
        descriptors = [its.fileno(), p2cread, c2pwrite, errwrite]
        with its:
            header = struct.pack("q", len(request))
            socket.send_fds(_server(), [header], descriptors)
            _server().sendall(request)
        for descriptor in {p2cread, c2pwrite, errwrite} - {-1}:
            with contextlib.suppress(OSError):
                os.close(descriptor)
        self.pid = _STATUS.unpack(self._answers.recv(_STATUS.size, socket.MSG_WAITALL))[0]
        self._child_created = True

    def _try_wait(self, wait_flags):
        """Called by Popen: as `os.waitpid`."""
        flag = socket.MSG_DONTWAIT if wait_flags & os.WNOHANG else socket.MSG_WAITALL
        try:
            answer = self._answers.recv(_STATUS.size, flag)
        except BlockingIOError:
            return 0, 0
        self._answers.close()
        return self.pid, _STATUS.unpack(answer)[0]

    def _internal_poll(self, *_args, **_options):
        """Called by Popen: the exit status, or None."""
        # The connection is lost with a failed test, whose objects are collected in any order.
        if self.returncode is None and self._answers.fileno() >= 0:
            pid, status = self._try_wait(os.WNOHANG)
            if pid:
                self._handle_exitstatus(status)
        return self.returncode


def _serve(requests: socket.socket) -> tuple[list[str], str, dict[str, str], bool] | None:
    """Answers requests; returns in a new process for each of them, and None at the end."""
    while True:
        header, descriptors, _, _ = socket.recv_fds(requests, 8, 4)
        if not header:
            return None
        request = pickle.loads(requests.recv(struct.unpack("q", header)[0], socket.MSG_WAITALL))
        # The process between waits for the program, which the pytest process cannot.
        if os.fork():
            for descriptor in descriptors:
                os.close(descriptor)
            with contextlib.suppress(ChildProcessError):
                while os.waitpid(-1, os.WNOHANG)[0]:
                    pass
            continue
        requests.close()
        answer, *streams = descriptors
        pid = os.fork()
        if not pid:
            os.close(answer)
            for number, descriptor in enumerate(streams):
                os.dup2(descriptor, number)
                os.close(descriptor)
            return request
        for descriptor in streams:
            os.close(descriptor)
        os.write(answer, _STATUS.pack(pid))
        os.write(answer, _STATUS.pack(os.waitpid(pid, 0)[1]))
        os._exit(0)


def _become(
    arguments: list[str], directory: str, environment: dict[str, str], new_session: bool
) -> None:
    """Runs a module as `python -m` does."""
    if new_session:
        os.setsid()
    os.chdir(directory)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv[1:] = arguments[1:]
    # The second is PYTHONPATH.
    sys.path[:2] = [directory, *filter(None, environment.get("PYTHONPATH", "").split(os.pathsep))]
    importlib.invalidate_caches()
    tempfile.tempdir = None  # which follows from the environment
    runpy.run_module(arguments[0], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    from tff_pcdd import heavy
    from tff_pcdd.cli import messages

    messages.install("tests")  # before TensorFlow, which sets up its own messages otherwise
    heavy.load(*_IMPORTED)
    for package in _WHOLE:
        folder = str(_ROOT / "tff_pcdd" / package)
        for found in pkgutil.walk_packages([folder], f"tff_pcdd.{package}."):
            importlib.import_module(found.name)
    gc.freeze()
    gc.set_threshold(50_000)  # as in the tests' own process
    with socket.socket(fileno=int(sys.argv[1])) as requests:
        wanted = _serve(requests)
    if wanted is not None:
        _become(*wanted)
