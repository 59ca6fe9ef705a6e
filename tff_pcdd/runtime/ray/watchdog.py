"""Ends what Ray leaves behind when the process that started it is killed.

    python -I -S watchdog.py DIRECTORY PROCESS…

waits until its standard input is closed, that is, until the process at the other end of the pipe
ends. Then it kills the given processes and removes the directory. Ray's processes do most of this
themselves, but its agents first try for a minute to report the loss. It uses the standard library
only, because it runs as a program of its own.
"""

import os
import shutil
import signal
import sys


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
        if identify(pid) == process:
            signal.pidfd_send_signal(descriptor, signal.SIGKILL)
    except OSError:
        pass
    finally:
        os.close(descriptor)


def main() -> None:
    """Waits, and cleans up."""
    directory, *processes = sys.argv[1:]
    sys.stdin.buffer.read()
    for process in processes:
        kill(process)
    shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    main()
