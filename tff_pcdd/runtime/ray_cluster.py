"""The connection of this process to a Ray cluster, which is started on this machine if wanted.

A cluster that is started here

- listens on the loopback interface only, and demands a random token;
- has no dashboard, and sends no usage statistics;
- has its files, such as the actors' logs, in a temporary directory of its own;
- ends with this process, whatever ends it: Ray's processes ask the kernel for that, and a watchdog
  ends those that do not.

A process has at most one connection, which ends when its last user releases it.
"""

from __future__ import annotations

import contextlib
import logging
import os
import pathlib
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from typing import Any

from tff_pcdd.errors import SettingError
from tff_pcdd.runtime.errors import RuntimeStartError
from tff_pcdd.runtime.processes import children

# Ray's sockets are in the directory, and the kernel limits their paths to 107 bytes.
_LONGEST_TEMP = 14
_PREFIX = "tff_ray_"
_MOST_ATTEMPTS = 3
_CONNECT_TIMEOUT = 10.0

_ENVIRONMENT = {
    # Otherwise Ray replaces the loopback address by that of a network interface.
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
    "RAY_AUTH_MODE": "token",
    "RAY_USAGE_STATS_ENABLED": "0",
}

_lock = threading.RLock()
_users = 0
_address: str | None = None
_directory: pathlib.Path | None = None
_owned = False
_keeps_logs = False
_watchdog: subprocess.Popen | None = None


def connect(address: str | None, num_cpus: int | None = None) -> None:
    """Connects this process to a cluster, or starts one; `release` is its counterpart.

    A connection that the process already has is used, and stays open afterwards.

    Args:
        address: "host:port", "auto", or None for a cluster of this process.
        num_cpus: number of CPUs of the cluster of this process; by default those it may use.

    Raises:
        SettingError: the process is connected to another cluster.
        RuntimeStartError: there is no cluster at the address, or it cannot be started.
    """
    global _users, _address, _owned
    with _lock:
        if _users and address != _address:
            here = _address or "a cluster of its own"
            reason = f"this process is connected to {here}; close that runtime first"
            raise SettingError("ray_address", address, reason)
        if not _users:
            _owned = _open(address, num_cpus)
            _address = address
        _users += 1


def release() -> None:
    """Ends the use of the connection; the last user closes it."""
    global _users
    with _lock:
        _users -= 1
        if not _users and _owned:
            _close()


def logs() -> str:
    """Where the logs of actors are."""
    return str(_directory / "session_latest" / "logs") if _directory else "Ray's session directory"


def keep_logs() -> None:
    """Keeps the logs after the end of a cluster of this process."""
    global _keeps_logs
    _keeps_logs = True


def _open(address: str | None, num_cpus: int | None) -> bool:
    """Connects or starts; returns whether this process was not connected before."""
    global _directory, _keeps_logs
    import ray

    if ray.is_initialized():
        return False
    settings: dict[str, Any] = {"address": address}
    if address not in (None, "auto"):
        _check_reachable(address)
    _keeps_logs = False
    if address is None:
        sweep()
        secure()
        # The directory can be entered by this user only.
        _directory = pathlib.Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}_", dir=_temp()))
        settings = {
            "address": "local",
            "num_cpus": num_cpus or len(os.sched_getaffinity(0)),
            "include_dashboard": False,
            "_temp_dir": str(_directory),
        }
    logging.getLogger("ray").setLevel(logging.ERROR)
    ray._private.worker.print_to_stdstream = _log_message
    with _own_signal_handlers():
        for attempt in range(_MOST_ATTEMPTS):
            try:
                ray.init(**settings, log_to_driver=False, configure_logging=False)
                break
            except Exception as error:
                ray.shutdown()
                # On a busy machine, a node may not start within Ray's own time limit.
                if address is None and "timed out" in str(error) and attempt + 1 < _MOST_ATTEMPTS:
                    continue
                _close()
                reason = " ".join(str(error).split())[:300]
                where = f"connect to {address}" if address else "start on this machine"
                raise RuntimeStartError(f"Ray cannot {where}: {reason}") from error
    if _directory is not None:
        _start_watchdog(_directory)
    return True


def _start_watchdog(directory: pathlib.Path) -> None:
    """Starts a process that cleans up if this one is killed; see `ray_watchdog`."""
    global _watchdog
    pids = map(str, children(os.getpid()))
    script = str(pathlib.Path(__file__).with_name("ray_watchdog.py"))
    _watchdog = subprocess.Popen(
        [sys.executable, "-I", "-S", script, str(directory), *pids],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        # Ctrl-C must not end it.
        start_new_session=True,
    )


def _check_reachable(address: str) -> None:
    """Refuses an address at which nothing listens; Ray would try for minutes.

    Raises:
        RuntimeStartError: the connection fails.
    """
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), _CONNECT_TIMEOUT).close()
    except (OSError, OverflowError) as error:
        raise RuntimeStartError(f"Ray cannot connect to {address}: {error}") from error


def secure() -> None:
    """Restricts a cluster that is started next to this machine, and to whoever has its token."""
    import ray

    os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))
    os.environ.update(_ENVIRONMENT)
    # Ray has read the variables when it was imported.
    ray._private.ray_constants.ENABLE_RAY_CLUSTER = False
    ray._raylet.Config.initialize("")  # type: ignore[attr-defined]


def _close() -> None:
    """Disconnects, and ends a cluster of this process."""
    global _directory, _watchdog
    import ray

    ray.shutdown()
    if _watchdog is not None:
        _watchdog.kill()
        _watchdog.communicate()
        _watchdog = None
    if _directory is not None and not _keeps_logs:
        shutil.rmtree(_directory, ignore_errors=True)
    _directory = None


def _log_message(data: Any, *_: object, **__: object) -> None:
    """Takes what Ray would print to standard output, such as that a process of its own has ended.

    What matters of it is in the runtime's own messages.
    """
    logging.debug("ray: %s", data.get("lines"))


@contextlib.contextmanager
def _own_signal_handlers() -> Iterator[None]:
    """Keeps the program's handler of SIGTERM, which Ray replaces by its own."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handler = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, handler)


def _temp() -> str:
    """The directory for temporary files, or a shorter one."""
    usual = tempfile.gettempdir()
    return usual if len(usual) <= _LONGEST_TEMP else "/tmp"


def sweep() -> None:
    """Removes the directories of processes that were killed."""
    for directory in pathlib.Path(_temp()).glob(f"{_PREFIX}*_*"):
        pid = directory.name.removeprefix(_PREFIX).partition("_")[0]
        with contextlib.suppress(OSError):
            ended = pid.isdecimal() and not pathlib.Path(f"/proc/{pid}").exists()
            if ended and directory.stat().st_uid == os.getuid():
                shutil.rmtree(directory, ignore_errors=True)
