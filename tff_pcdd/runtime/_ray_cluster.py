"""A Ray cluster: one that is started on this machine for the time of a block, or one that runs.

A cluster that is started here can be used by this program only: its services listen on the loopback
interface, and they answer only calls with a token that was drawn for this process. Its processes
end with this one, however that ends: the kernel kills Ray's services, and without them the
processes that compute end too.

Ray is an optional package, so it is imported when a cluster is needed.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import logging
import os
import secrets
import shutil
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tff_pcdd.errors import SettingError
from tff_pcdd.runtime.errors import RuntimeStartError

# Ray replaces the handlers of these signals.
_SIGNALS = (signal.SIGINT, signal.SIGTERM)
# Seconds within which a cluster has to answer.
_PATIENCE = 10.0
# The most characters of a directory whose Unix sockets Ray can name: 107, less what it appends.
_LONGEST = 30


def check_installed(setting: str, value: Any) -> None:
    """Checks that Ray is installed.

    Args:
        setting: the setting that needs Ray, for the error.
        value: its value.

    Raises:
        SettingError: Ray is not installed.
    """
    if importlib.util.find_spec("ray") is None:
        reason = 'needs Ray, which `pip install "tff_pcdd[ray]"` or `make install-ray` installs'
        raise SettingError(setting, value, reason)


@contextlib.contextmanager
def connected(
    address: str | None = None,
    *,
    environment: Mapping[str, str] | None = None,
    object_store_bytes: int | None = None,
) -> Iterator[None]:
    """Connects this process to a Ray cluster for the time of a block.

    Args:
        address: the address of a running cluster; None starts one on this machine, and ends it
            after the block.
        environment: environment variables of the processes of a cluster that is started.
        object_store_bytes: memory of such a cluster for shared objects; by default, Ray chooses.

    Raises:
        RuntimeStartError: Ray cannot be started or reached.
    """
    with contextlib.ExitStack() as stack:
        if address is None:
            parent = tempfile.gettempdir()
            parent = parent if len(parent) <= _LONGEST else "/tmp"
            folder = Path(tempfile.mkdtemp(prefix="tff_pcdd_ray_", dir=parent))
            # Ray lets everybody write to the directories in it, but nobody else can enter it.
            stack.callback(_remove, folder)
            options: dict[str, Any] = {
                "address": "local",
                "num_cpus": len(os.sched_getaffinity(0)),
                "object_store_memory": object_store_bytes,
                "include_dashboard": False,
                "_node_ip_address": "127.0.0.1",
                "_temp_dir": str(folder),
            }
            variables = {**(environment or {}), **_private_cluster()}
        else:
            _check_reachable(address)
            options, variables = {"address": address}, {}
        variables["RAY_USAGE_STATS_ENABLED"] = "0"
        stack.enter_context(_connection(options, variables))
        yield


def _check_reachable(address: str) -> None:
    """Checks that something listens at an address, for which Ray itself would wait for minutes.

    Raises:
        RuntimeStartError: nothing does.
    """
    host, colon, port = address.rpartition(":")
    if colon and "/" not in host and port.isdecimal():
        try:
            socket.create_connection((host, int(port)), _PATIENCE).close()
        except (OSError, OverflowError) as error:
            raise RuntimeStartError(f"Ray cannot be reached at {address}: {error}") from error


def _private_cluster() -> dict[str, str]:
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


@contextlib.contextmanager
def _connection(options: Mapping[str, Any], variables: Mapping[str, str]) -> Iterator[None]:
    """Starts or reaches a cluster, and leaves it at the end of the block."""
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
        cluster, ray_constants.ENABLE_RAY_CLUSTER = ray_constants.ENABLE_RAY_CLUSTER, False
        try:
            ray.init(**options, log_to_driver=False, configure_logging=False)
        except Exception as error:
            ray.shutdown()
            reason = " ".join(str(error).split())[:300]
            raise RuntimeStartError(f"Ray cannot be started or reached: {reason}") from error
        finally:
            ray_constants.ENABLE_RAY_CLUSTER = cluster
    orderly = False
    try:
        yield
        orderly = True
    finally:
        module = internals._private.worker
        node = module._global_node
        with _handlers_kept():
            if orderly or not node.is_head():
                ray.shutdown(wait_for_processes=True)
            else:
                # Whoever interrupts the program does not want to wait for an orderly end.
                module._global_node = None
                started = _children_of_raylet(node)
                ray.shutdown()
                node.kill_all_processes(check_alive=False, allow_graceful=False)
                for process in started:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(process, signal.SIGKILL)


def _log_message(data: Mapping[str, Any], *_: object) -> None:
    """Takes what Ray would print, such as that a process has died; whoever waits for it knows."""
    logging.debug("ray: %s", data.get("lines"))


def _children_of_raylet(node: Any) -> list[int]:
    """The processes that compute, and others; they would notice the end of Ray seconds later."""
    return [
        int(process)
        for raylet in node.all_processes.get("raylet", ())
        for path in Path(f"/proc/{raylet.process.pid}/task").glob("*/children")
        for process in path.read_text().split()
    ]


def _remove(folder: Path) -> None:
    """Removes the directory of a cluster whose processes are ending."""
    for _ in range(20):
        shutil.rmtree(folder, ignore_errors=True)
        if not folder.exists():
            break
        time.sleep(0.05)


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
                signal.signal(number, handler)
