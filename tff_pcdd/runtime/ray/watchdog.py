"""Ends what Ray leaves behind when the process that started it is killed.

    python -I -S watchdog.py SETTINGS

waits until its standard input is closed, that is, until the process at the other end of the pipe
ends. Then it kills processes and removes a directory. Ray's processes do most of this themselves,
but its agents first try for a minute to report the loss.

Ray's library ends the process that uses it, without a message, when it finds that Ray's own
processes are gone. If one of these has ended before that process, the watchdog says so in its
place. It uses the standard library only, because it runs as a program of its own.
"""

import contextlib
import json
import os
import select
import shutil
import signal
import sys
from collections.abc import Mapping


def identify(pid: int) -> str:
    """Names a process by its id and its start, because the system uses ids again.

    Raises:
        OSError: there is no such process.
    """
    with open(f"/proc/{pid}/stat", "rb") as file:
        # The name of the process, in parentheses, may contain any character.
        start = file.read().rpartition(b")")[2].split()[19]
    return f"{pid}:{start.decode()}"


def kill(process: str) -> None:
    """Kills a process that `identify` has named, if it still runs and this user may."""
    pid = int(process.partition(":")[0])
    try:
        # It stays the same process from here on.
        descriptor = os.pidfd_open(pid)
    except OSError:
        return
    try:
        with contextlib.suppress(OSError):
            if identify(pid) == process:
                signal.pidfd_send_signal(descriptor, signal.SIGKILL)
    finally:
        os.close(descriptor)


def workers(directory: str) -> list[str]:
    """The processes that write their errors to a file in a directory, such as Ray's workers.

    They outlive their parent while they compute, and nobody knows then whose children they are.
    """
    found = []
    for name in os.listdir("/proc"):
        if name.isdecimal():
            # It may have ended, or be another user's.
            with contextlib.suppress(OSError):
                if os.readlink(f"/proc/{name}/fd/2").startswith(f"{directory}/"):
                    found.append(identify(int(name)))
    return found


class Vital:
    """Processes, as ids by name, of which none may end."""

    def __init__(self, processes: Mapping[str, int]):
        self._names: dict[int, str] = {}
        self._poll = select.poll()
        for name, pid in processes.items():
            with contextlib.suppress(ProcessLookupError):
                descriptor = os.pidfd_open(pid)
                self._names[descriptor] = name
                self._poll.register(descriptor, select.POLLIN)

    def ended(self) -> str:
        """The name of one that has ended; empty if all run."""
        ready = self._poll.poll(0)
        return self._names[ready[0][0]] if ready else ""

    def ended_before(self, file: int) -> str:
        """Waits for the end of a file; the name of a process that ended before, or empty."""
        self._poll.register(file, select.POLLIN)
        name = ""
        while True:
            ready = {descriptor for descriptor, _ in self._poll.poll()}
            # If both have ended, the kernel may have killed the process because of who held the
            # file open.
            if file in ready:
                return name
            for descriptor in ready:
                name = name or self._names[descriptor]
                self._poll.unregister(descriptor)

    def close(self) -> None:
        """Frees the descriptors of the processes."""
        while self._names:
            descriptor, _ = self._names.popitem()
            self._poll.unregister(descriptor)
            os.close(descriptor)


def loss(name: str, logs: str) -> str:
    """What to say about the end of a process of Ray, whose logs are in a directory."""
    return (
        f"Ray's process {name} has ended, without which no actor can be reached; Ray's logs are in "
        f"{logs}"
    )


def main() -> None:
    """Waits, and cleans up."""
    settings = json.loads(sys.argv[1])
    directory = settings["directory"]
    name = Vital(settings["vital"]).ended_before(0)
    if name:
        with contextlib.suppress(OSError):
            print(f"{settings['program']}: error: {loss(name, settings['logs'])}", file=sys.stderr)
    if directory:
        for process in [*settings["started"], *workers(directory)]:
            kill(process)
        if not name:
            shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    main()
