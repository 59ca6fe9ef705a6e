"""Ends what Ray leaves behind when the process that started it is killed.

    python -I -S ray_watchdog.py DIRECTORY PID…

waits for the end of its standard input, that is of the process that holds the other end. Then it
kills the processes and removes the directory. Ray's own processes do most of this themselves, but
its agents try for a minute to report the loss first.
"""

import os
import shutil
import signal
import sys


def main() -> None:
    """Waits, and cleans up."""
    directory, *pids = sys.argv[1:]
    sys.stdin.buffer.read()
    for pid in pids:
        try:
            # Not a process that has got the number since.
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                if b"ray" in file.read():
                    os.kill(int(pid), signal.SIGKILL)
        except OSError:
            pass
    shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    main()
