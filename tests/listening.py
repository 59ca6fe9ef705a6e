"""At which addresses processes listen, as the kernel lists them."""

import contextlib
import os
import pathlib

# 127.0.0.1, and the same as an IPv6 address; ::1.
LOOPBACK = {
    "0100007F",
    "0000000000000000FFFF00000100007F",
    "00000000000000000000000001000000",
}


def addresses(pids):
    """The addresses, in the kernel's notation, at which at least one of the processes listens."""
    inodes = set()
    for pid in pids:
        with contextlib.suppress(OSError):
            for link in pathlib.Path(f"/proc/{pid}/fd").iterdir():
                with contextlib.suppress(OSError):
                    inodes.add(os.readlink(link).removeprefix("socket:[").rstrip("]"))
    found = set()
    for table in ("tcp", "tcp6"):
        for line in pathlib.Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and fields[9] in inodes:
                found.add(fields[1].partition(":")[0])
    return found
