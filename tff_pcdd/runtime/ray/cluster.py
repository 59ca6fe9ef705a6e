"""Connects this process to a Ray cluster, or starts one on this machine.

A cluster that is started here

- listens on the loopback interface only, and answers only calls with a token that was generated
  for this process;
- has no dashboard, and sends no usage statistics;
- keeps its files, such as the actors' logs, in a temporary directory of its own;
- ends with this process, however that ends: the kernel kills Ray's services, and a watchdog ends
  the processes that they leave behind.

A process has at most one connection, which ends when its last user releases it, or with the block
in which it is kept for further users. Ray is an optional package, so it is imported only when a
cluster is needed.
"""

from __future__ import annotations

import contextlib
import fcntl
import importlib.util
import os
import pathlib
import shutil
import socket
import tempfile
import threading
import time
from collections.abc import Iterator
from typing import Any

from tff_pcdd.errors import ActorsLostError, RuntimeStartError, SettingError
from tff_pcdd.runtime.processes import children, temporary_directory
from tff_pcdd.runtime.ray import processes, watchdog

# Ray's sockets are in the directory, and the kernel limits their paths to 107 bytes.
_LONGEST_TEMP = 12
_PREFIX = "tff_ray_"
_FILES = "r"
# Locked by the process whose directory it is, which may be in another container.
_LOCK = "lock"
# Seconds within which a cluster has to answer.
_PATIENCE = 10.0

_lock = threading.RLock()
_users = 0
# Blocks in which the connection stays open without users.
_keepers = 0
_address: str | None = None
_directory: pathlib.Path | None = None
_is_open = False
_opened = contextlib.ExitStack()
_keeps_logs = False
_vital = watchdog.Vital({})


def check_installed() -> None:
    """Checks that Ray is installed."""
    if importlib.util.find_spec("ray") is None:
        reason = 'needs the package ray: pip install "tff_pcdd[ray]", or make install-ray'
        raise SettingError("runtime", "ray", reason)


def check_address(address: str) -> None:
    """Checks the form of an address."""
    host, _, port = address.rpartition(":")
    if address != "auto" and not (host and "/" not in host and port.isdecimal()):
        raise SettingError("ray_address", address, "must be host:port, or auto")


@contextlib.contextmanager
def connected(address: str | None, **options: Any) -> Iterator[None]:
    """Connects this process for the duration of a block; the arguments are those of `connect`."""
    connect(address, **options)
    try:
        yield
    finally:
        release()


@contextlib.contextmanager
def kept() -> Iterator[None]:
    """Keeps a connection that is made inside of a block open until its end, for further users.

    They find Ray's processes with the libraries that these have imported. Without users, none is
    made.
    """
    global _keepers
    with _lock:
        _keepers += 1
    try:
        yield
    finally:
        with _lock:
            _keepers -= 1
            _close_if_unused()


def connect(address: str | None, *, num_cpus: int | None = None) -> None:
    """Connects this process to a cluster, or starts one; `release` is its counterpart.

    If the process already has a connection, that one is used and stays open afterwards, unless Ray
    has ended meanwhile.

    Args:
        address: "host:port", "auto", or None to start a cluster for this process.
        num_cpus: number of CPUs of a started cluster; by default, those that this process may use.

    Raises:
        SettingError: the process is connected to another cluster.
        RuntimeStartError: there is no cluster at the address, or none can be started.
    """
    global _users, _address, _is_open
    with _lock:
        if (_users or _is_open) and address != _address:
            here = _address or "a cluster of its own"
            reason = f"this process is connected to {here}; close that runtime first"
            raise SettingError("ray_address", address, reason)
        if not _users:
            import ray

            if _is_open and is_lost():
                # It was kept, but has ended.
                _opened.close()
            if not ray.is_initialized():
                _open(address, num_cpus)
                _is_open = True
            _address = address
        _users += 1


def release() -> None:
    """Ends the use of the connection; the last user closes it."""
    global _users
    with _lock:
        _users -= 1
        _close_if_unused()


def _close_if_unused() -> None:
    global _is_open
    if not _users and not _keepers:
        _is_open = False
        _opened.close()


def logs() -> str:
    """The directory of the actors' logs."""
    return (
        str(_directory / _FILES / "session_latest" / "logs")
        if _directory
        else "Ray's session directory"
    )


def check() -> None:
    """Checks that Ray still runs; if not, its next calls may end this process without a message.

    Raises:
        ActorsLostError: a process of Ray on this machine has ended.
    """
    if name := _vital.ended():
        keep_logs()
        raise ActorsLostError(watchdog.loss(name, logs()))


def is_lost() -> bool:
    """Whether `check` would raise an error."""
    return bool(_vital.ended())


def keep_logs() -> None:
    """Keeps the logs of a cluster that this process has started after its end."""
    global _keeps_logs
    _keeps_logs = True


def _open(address: str | None, num_cpus: int | None) -> None:
    """Connects to a cluster or starts one."""
    global _directory, _keeps_logs, _vital
    _keeps_logs = False
    variables = {"RAY_USAGE_STATS_ENABLED": "0"}
    options: dict[str, Any] = {"address": address}
    with contextlib.ExitStack() as stack:
        if address is None:
            sweep()
            name = f"{_PREFIX}{os.getpid()}_"
            # Ray's own directory is writable for all users, but only this user can enter this one.
            _directory = pathlib.Path(
                tempfile.mkdtemp(prefix=name, dir=temporary_directory(_LONGEST_TEMP))
            )
            stack.callback(_remove_directory)
            lock = stack.enter_context(open(_directory / _LOCK, "w"))
            fcntl.flock(lock, fcntl.LOCK_EX)
            options = {
                "address": "local",
                "num_cpus": num_cpus or len(os.sched_getaffinity(0)),
                "include_dashboard": False,
                "_node_ip_address": "127.0.0.1",
                "_temp_dir": str(_directory / _FILES),
            }
            variables |= processes.private_environment()
        elif address != "auto":
            _check_reachable(address)
        others = children(os.getpid())
        try:
            processes.initialize(address, options, variables)
            parts = processes.vital()
        except BaseException:
            # Ctrl-C, for example, while some of Ray's processes have started.
            processes.give_up(_directory, others)
            raise
        _vital = watchdog.Vital(parts)
        stack.callback(_vital.close)
        # It ends after Ray.
        stack.enter_context(processes.guarded(_directory, logs(), parts, others))
        stack.callback(processes.shut_down, _directory)
        _opened.push(stack.pop_all())


def _check_reachable(address: str) -> None:
    """Refuses an address at which nothing listens; Ray would try for minutes."""
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), _PATIENCE).close()
    except (OSError, OverflowError) as error:
        raise RuntimeStartError(f"Ray cannot connect to {address}: {error}") from error


def _remove_directory() -> None:
    """Removes the directory of a cluster whose processes are ending, unless its logs are kept."""
    global _directory
    directory, _directory = _directory, None
    for _ in range(20):
        if _keeps_logs or directory is None or not directory.exists():
            return
        shutil.rmtree(directory, ignore_errors=True)
        time.sleep(0.05)


def sweep() -> None:
    """Removes the directories of processes that were killed."""
    for directory in pathlib.Path(temporary_directory(_LONGEST_TEMP)).glob(f"{_PREFIX}*_*"):
        pid = directory.name.removeprefix(_PREFIX).partition("_")[0]
        with contextlib.suppress(OSError):
            ended = pid.isdecimal() and not pathlib.Path(f"/proc/{pid}").exists()
            if ended and directory.stat().st_uid == os.getuid():
                with open(directory / _LOCK, "w") as lock:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    shutil.rmtree(directory, ignore_errors=True)
