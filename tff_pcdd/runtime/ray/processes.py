"""Starts Ray's processes, and ends them; used by `cluster`.

`directory` is that of a cluster that this process has started, and `others` are the descendants of
this process that do not belong to the cluster.
"""

from __future__ import annotations

import contextlib
import functools
import json
import logging
import os
import pathlib
import secrets
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

from tff_pcdd.errors import RuntimeStartError
from tff_pcdd.runtime.processes import children
from tff_pcdd.runtime.ray import watchdog

_logger = logging.getLogger(__name__)

# Ray replaces the handlers of these signals.
_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_MOST_ATTEMPTS = 3

# Of the process at the other end of a Unix socket: its id, its user and its group.
_CREDENTIALS = struct.Struct("3i")


def initialize(
    address: str | None, options: Mapping[str, Any], variables: Mapping[str, str]
) -> None:
    """Connects to a cluster, or starts one.

    Raises:
        RuntimeStartError: that fails.
    """
    with _environment(variables), _handlers_kept():
        import ray
        from ray._private import ray_constants

        # Errors of tasks are reported by whoever waits for them.
        logging.getLogger("ray").setLevel(logging.CRITICAL)
        internals: Any = ray
        internals._private.worker.print_to_stdstream = _log_message
        # The process may have imported Ray before, which then has read the variables, or may have
        # used another cluster, with a token.
        internals._raylet.Config.initialize("")
        internals._raylet.AuthenticationTokenLoader.instance().reset_cache()
        with (
            _replaced(
                ray_constants, ENABLE_RAY_CLUSTER=False, RAY_DISABLE_FAILURE_SIGNAL_HANDLER=True
            ),
            # Ray would end the process without a message on a SIGTERM before `init` has returned,
            # and, with its handler of failures, while it shuts down.
            _replaced(internals._private.utils, set_sigterm_handler=lambda _: None),
        ):
            for attempt in range(_MOST_ATTEMPTS):
                try:
                    ray.init(**options, log_to_driver=False, configure_logging=False)
                    return
                except Exception as error:
                    ray.shutdown()
                    slow = address is None and "timed out" in str(error).lower()
                    # On a busy machine, a node may not start within Ray's own time limit.
                    if not slow or attempt + 1 == _MOST_ATTEMPTS:
                        reason = " ".join(str(error).split())[:300]
                        where = f"connect to {address}" if address else "start on this machine"
                        raise RuntimeStartError(f"Ray cannot {where}: {reason}") from error


def private_environment() -> dict[str, str]:
    """The environment of a cluster that only this process can use."""
    return {
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN": _token(),
        # Otherwise Ray replaces the loopback address by that of another interface.
        "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
        # By default, a task is repeated for ever when the memory is not sufficient.
        "RAY_task_oom_retries": "1",
        # By default, Ray's processes give way to all others on the machine.
        "RAY_worker_niceness": "0",
    }


@functools.cache
def _token() -> str:
    """A token for all clusters of this process, because Ray reads it once."""
    return secrets.token_hex(32)


def shut_down(directory: pathlib.Path | None) -> None:
    """Leaves the cluster. One of this process ends at once, because its results have arrived."""
    import ray

    internals: Any = ray
    module = internals._private.worker
    node = module._global_node
    with _handlers_kept():
        if node is None or not node.is_head():
            ray.shutdown(wait_for_processes=True)
            return
        module._global_node = None
        # Those that compute, and others; they would notice the end of Ray seconds later.
        raylets = node.all_processes.get("raylet", ())
        started = _identities(pid for raylet in raylets for pid in children(raylet.process.pid))
        ray.shutdown()
        # An orderly end would take seconds.
        node.kill_all_processes(check_alive=False, allow_graceful=False)
        for process in [*started, *watchdog.workers(str(directory))]:
            watchdog.kill(process)


def _identities(pids: Iterable[int]) -> list[str]:
    """The processes that still run, as `watchdog` names them."""
    found = []
    for pid in pids:
        with contextlib.suppress(OSError):
            found.append(watchdog.identify(pid))
    return found


def give_up(directory: pathlib.Path | None, others: Collection[int]) -> None:
    """Ends a start or a connection that has been interrupted."""
    ray: Any = sys.modules.get("ray")
    # Ray's threads would report the loss of their connections.
    if getattr(ray, "is_initialized", bool)():
        shut_down(directory)
    for process in _identities(set(children(os.getpid())).difference(others)):
        watchdog.kill(process)


def vital() -> dict[str, int]:
    """The processes on this machine without which Ray computes nothing: their ids, by name.

    Raises:
        RuntimeStartError: Ray has ended.
    """
    internals: Any = sys.modules["ray"]
    node = internals._private.worker._global_node
    with socket.socket(socket.AF_UNIX) as connection:
        try:
            connection.connect(node.raylet_socket_name)
        except OSError as error:
            raise RuntimeStartError(f"Ray has ended at its start: {error}") from error
        peer = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    found = {"raylet": _CREDENTIALS.unpack(peer)[0]}
    for server in node.all_processes.get("gcs_server", ()):
        found["gcs_server"] = server.process.pid
    # A process in another container has no id here.
    return {name: pid for name, pid in found.items() if pid}


@contextlib.contextmanager
def guarded(
    directory: pathlib.Path | None, logs: str, parts: Mapping[str, int], others: Collection[int]
) -> Iterator[None]:
    """Cleans up if this process is killed in the block, and says if Ray ends it; see `watchdog`."""
    settings = {
        "program": os.path.splitext(os.path.basename(sys.argv[0]))[0],
        "logs": logs,
        "directory": str(directory or ""),
        "vital": dict(parts),
        "started": _identities(set(children(os.getpid())).difference(others)),
    }
    process = subprocess.Popen(
        [sys.executable, "-I", "-S", watchdog.__file__, json.dumps(settings)],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        # Ctrl-C must not end it.
        start_new_session=True,
    )
    try:
        yield
    finally:
        process.kill()
        process.communicate()


def _log_message(data: Mapping[str, Any], *_: object, **__: object) -> None:
    """Takes what Ray would print, such as that a process has died; whoever waits for it knows."""
    _logger.debug("ray: %s", data.get("lines"))


@contextlib.contextmanager
def _replaced(module: Any, **values: Any) -> Iterator[None]:
    """Replaces attributes of a module for a block."""
    before = {name: getattr(module, name) for name in values}
    vars(module).update(values)
    try:
        yield
    finally:
        vars(module).update(before)


@contextlib.contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Sets environment variables for a block."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


@contextlib.contextmanager
def _handlers_kept() -> Iterator[None]:
    """Restores the handlers of signals and errors that Ray replaces in the block."""
    handlers = {number: signal.getsignal(number) for number in _SIGNALS}
    hook = sys.excepthook
    try:
        yield
    finally:
        sys.excepthook = hook
        # Only the main thread can, and only there Ray does it.
        with contextlib.suppress(ValueError):
            for number, handler in handlers.items():
                # A handler that was not set by Python cannot be restored.
                if handler is not None:
                    signal.signal(number, handler)
