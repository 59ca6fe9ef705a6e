"""The local C++ worker reports why it cannot start, and never outlives or blocks its user."""

import os
import pathlib
import signal
import stat
import subprocess
import sys
import tempfile
import threading
import time

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tests import preloaded, waiting
from tff_pcdd import runtime
from tff_pcdd.errors import SettingError
from tff_pcdd.runtime import launcher, worker, worker_process
from tff_pcdd.runtime.processes import children

pytestmark = pytest.mark.integration

_ROOT = pathlib.Path(runtime.__file__).parents[2]
_needs_private_network = pytest.mark.skipif(
    not launcher.can_isolate(), reason="no process gets a network of its own on this system"
)

# Programs that print the process id of their worker; their argument determines what they do then.
_COMPUTES = """
import sys
from tff_pcdd import runtime
context = runtime.use("tff", insecure=True).context
import numpy as np, tensorflow as tf, tensorflow_federated as tff
print(context.worker.pid, flush=True)

@tff.tensorflow.computation(np.int64)
def count(limit):
    return tf.while_loop(lambda i: i < limit, lambda i: (i + 1,), (tf.constant(0, tf.int64),))[0]

print(count(int(sys.argv[1])), flush=True)
"""
_WAITS = """
import sys, time
from tff_pcdd.runtime.worker_process import WorkerProcess, find_binary, unused_port
worker = WorkerProcess(find_binary(), unused_port())
print(worker.pid, flush=True)
if sys.argv[1] == "raise":
    raise ValueError("as planned")
time.sleep(1000)
"""


@tff.tensorflow.computation(np.int32)
def _double(x):
    return 2 * x


@tff.federated_computation(tff.FederatedType(np.int32, tff.CLIENTS))
def _sum_of_doubles(values):
    return tff.federated_sum(tff.federated_map(_double, values))


@tff.federated_computation(tff.FederatedType(np.int32, tff.CLIENTS))
def _secure_sum(values):
    return tff.federated_secure_sum(values, 100)


@tff.tensorflow.computation(np.int64)
def _count(limit):
    return tf.while_loop(lambda i: i < limit, lambda i: (i + 1,), (tf.constant(0, tf.int64),))[0]


def _start_user(
    folder: pathlib.Path, program: str, argument: str, fresh: bool = False, **environment: str
) -> subprocess.Popen:
    (folder / "user_of_a_worker.py").write_text(program)
    python = [sys.executable, "-m"] if fresh else []
    return (subprocess.Popen if fresh else preloaded.Process)(
        [*python, "user_of_a_worker", argument],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(_ROOT), "TF_CPP_MIN_LOG_LEVEL": "3", **environment},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )


def test_worker_ends_with_its_user_and_closes_the_pipe(tmp_path):
    user = _start_user(tmp_path, _COMPUTES, "3")
    # `communicate` waits until the pipe is closed; a worker that inherited it would keep it open.
    output, _ = user.communicate(timeout=300)
    pid, result = output.split()
    assert user.returncode == 0
    assert result == "3"
    waiting.until_ended(int(pid))


def test_worker_ends_when_its_user_fails(tmp_path):
    user = _start_user(tmp_path, _WAITS, "raise")
    output, _ = user.communicate(timeout=300)
    assert user.returncode == 1
    waiting.until_ended(int(output))


def test_worker_ends_when_its_user_is_interrupted_during_a_call(tmp_path):
    user = _start_user(tmp_path, _COMPUTES, str(10**15), fresh=True)
    pid = int(user.stdout.readline())
    time.sleep(0.5)
    assert waiting.runs(pid)
    user.send_signal(signal.SIGINT)
    output, _ = user.communicate(timeout=120)
    assert user.returncode == -signal.SIGINT
    assert not output
    waiting.until_ended(pid)


@pytest.mark.parametrize(
    "number",
    [pytest.param(signal.SIGINT, marks=pytest.mark.rare), signal.SIGTERM, signal.SIGKILL],
)
def test_worker_ends_when_its_user_is_terminated(number, tmp_path):
    user = _start_user(tmp_path, _WAITS, "")
    pid = int(user.stdout.readline())
    assert waiting.runs(pid)
    user.send_signal(number)
    user.communicate(timeout=120)
    assert user.returncode == -number
    waiting.until_ended(pid)


def test_computes_for_any_number_of_clients_and_ends_on_close():
    with runtime.use("tff", insecure=True) as context:
        # There are more cohort sizes than cached executors.
        for num_clients in (*range(1, 13), 2):
            assert _sum_of_doubles(list(range(num_clients))) == num_clients * (num_clients - 1)
        assert _secure_sum([1, 2]) == 3
        pid = context.worker.pid
    assert not waiting.runs(pid)


def test_computes_where_the_directory_for_temporary_files_has_a_long_name(tmp_path, monkeypatch):
    """Addresses of sockets are short."""
    long = tmp_path / ("x" * 90)
    long.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(long))
    context = worker.create_context(insecure=True)
    try:
        with runtime.installed(context):
            assert tff.tensorflow.computation(lambda x: 2 * x, np.int32)(21) == 42
    finally:
        context.close()


def test_a_worker_killed_during_a_call_is_an_error():
    with runtime.use("tff", insecure=True) as context:
        assert _double(1) == 2
        killer = threading.Timer(0.5, os.kill, (context.worker.pid, signal.SIGKILL))
        killer.start()
        with pytest.raises(runtime.WorkerDiedError, match="signal 9"):
            _count(10**15)
        with pytest.raises(runtime.WorkerDiedError, match="signal 9"):
            _double(1)


def test_errors_inside_a_computation_are_reported_once():
    @tff.tensorflow.computation(np.int32)
    def refuse(x):
        with tf.control_dependencies([tf.debugging.assert_less(x, 0, message="not this one")]):
            return tf.identity(x)

    with runtime.use("tff", insecure=True):
        with pytest.raises(Exception, match="not this one"):
            refuse(1)
        assert _double(4) == 8


def _start(binary):
    """Starts another program as the worker."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(worker_process.BINARY_VARIABLE, str(binary))
        worker.create_context(insecure=True)


@pytest.mark.parametrize(
    ("content", "mode", "reasons"),
    [
        (None, 0, ["worker_binary is not a file"]),
        (b"", 0o644, ["is not executable"]),
        (b"\x7fELF, but not of this machine", 0o755, ["Exec format error"]),
        (
            b"#!/bin/sh\necho \"/lib/libc.so.6: version 'GLIBC_2.34' not found\" >&2; exit 1\n",
            0o755,
            ["exited with status 1", "'GLIBC_2.34' not found", "C library is too old"],
        ),
        (b"#!/bin/sh\nexit 0\n", 0o755, ["exited with status 0 without any output"]),
    ],
    ids=["missing", "not executable", "of another machine", "C library too old", "silent"],
)
def test_programs_that_cannot_be_the_worker(content, mode, reasons, tmp_path):
    path = tmp_path / "worker_binary"
    if content is not None:
        path.write_bytes(content)
        path.chmod(mode)
    with pytest.raises(runtime.RuntimeStartError) as caught:
        _start(path)
    for reason in reasons:
        assert reason in str(caught.value)


def test_no_answer(tmp_path, monkeypatch):
    monkeypatch.setattr(worker, "_START_TIMEOUT", 1.0)
    before = children(os.getpid())
    path = tmp_path / "worker_binary"
    path.write_text("#!/bin/sh\nexec sleep 1000\n")
    path.chmod(0o755)
    with pytest.raises(runtime.RuntimeStartError, match=r"did not answer on port .* within 1 s"):
        _start(path)
    assert {*children(os.getpid())} <= {*before}


@_needs_private_network
def test_nobody_else_reaches_the_worker(tmp_path, monkeypatch):
    """Its port is in a network of its own, and only this user can open the socket that leads in."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with runtime.use("tff") as context:
        assert _double(2) == 4
        pid, inner = context.worker.pid, _child(context.worker.pid)
        assert _network(pid) == _network(inner) != _network("self")
        (folder,) = tmp_path.iterdir()
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    waiting.until_ended(inner)
    assert not list(tmp_path.iterdir())


@_needs_private_network
@pytest.mark.parametrize(
    "number", [pytest.param(signal.SIGTERM, marks=pytest.mark.rare), signal.SIGKILL]
)
def test_a_user_that_is_killed_leaves_nothing(number, tmp_path):
    user = _start_user(tmp_path, _COMPUTES, str(10**15), TMPDIR=str(tmp_path))
    pid = int(user.stdout.readline())
    inner = _child(pid)
    assert list(tmp_path.glob("tff_pcdd_*/worker"))
    user.send_signal(number)
    user.communicate(timeout=120)
    waiting.until_ended(pid, inner)
    assert not list(tmp_path.glob("tff_pcdd_*"))


def test_a_worker_that_other_machines_could_reach_is_refused(monkeypatch):
    monkeypatch.setattr(launcher, "can_isolate", lambda: False)
    with pytest.raises(SettingError, match="on every network interface") as caught:
        runtime.use("tff")
    assert caught.value.setting == "insecure"
    assert "runtime=inprocess" in caught.value.reason
    with runtime.use("tff", insecure=True) as context:
        assert _double(2) == 4
        assert _network(context.worker.pid) == _network("self")


def _child(pid: int) -> int:
    (child,) = pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return int(child)


def _network(pid: int | str) -> str:
    """The network namespace of a process."""
    return os.readlink(f"/proc/{pid}/ns/net")


def test_use_restores_the_previous_runtime():
    stack = tff.framework.get_context_stack()
    original = stack.current
    with runtime.use("tff", insecure=True) as outer:
        assert stack.current is outer
        with runtime.use("tff", insecure=True) as inner:
            assert stack.current is inner
        assert not waiting.runs(inner.worker.pid)
        assert stack.current is outer
        assert _double(3) == 6
    assert stack.current is original


def test_use_closes_the_previous_runtime():
    stack = tff.framework.get_context_stack()
    original = stack.current
    first = runtime.use("tff", insecure=True).context
    with runtime.use("tff", insecure=True) as second:
        assert not waiting.runs(first.worker.pid)
        assert stack.current is second
    assert stack.current is original
