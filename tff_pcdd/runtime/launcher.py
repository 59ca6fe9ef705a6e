"""Starts a server that ends with its user, in a network of its own if wanted.

    python -I -S launcher.py PARENT "" PORT PROGRAM ARGUMENT…

becomes PROGRAM, and ends with the process PARENT.

    python -I -S launcher.py PARENT SOCKET PORT PROGRAM ARGUMENT…

starts PROGRAM in a new network namespace of the Linux kernel, whose only interface is a loopback of
its own, and connects the Unix socket SOCKET, which only this user can open, with PORT in it. No
process outside can reach the port in another way. Everything ends with the process PARENT.

This is a program, because `preexec_fn` would run Python code in a fork of a process with TensorFlow
and gRPC threads, which can deadlock. It imports the standard library only, so that it starts in a
few milliseconds.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import functools
import os
import pathlib
import shutil
import signal
import socket
import struct
import subprocess
import sys
import threading
from typing import NoReturn

# From Linux: sched.h, prctl.h, if.h and sockios.h.
_CLONE_NEWUSER, _CLONE_NEWNET = 0x10000000, 0x40000000
_PR_SET_PDEATHSIG = 1
_SIOCSIFFLAGS, _IFF_UP = 0x8914, 0x1
_SPLICE_BYTES = 1 << 20


@functools.cache
def can_isolate() -> bool:
    """Whether the kernel gives a process of this user a network of its own."""
    check = subprocess.run([sys.executable, "-I", "-S", __file__, "check"], capture_output=True)
    return check.returncode == 0


def command(
    program: str, arguments: list[str], port: int, private: pathlib.Path | None
) -> list[str]:
    """The command that runs a program until this process ends.

    Args:
        program: path of the program.
        arguments: its arguments.
        port: the port on which it listens.
        private: gives it a network of its own; the Unix socket for connections to the port, in a
            directory of its own, which is removed when this process ends.
    """
    own = [sys.executable, "-I", "-S", __file__, str(os.getpid())]
    return [*own, str(private or ""), str(port), program, *arguments]


def _enter() -> None:
    """Moves this process into a new network namespace and switches on its loopback interface."""
    libc = ctypes.CDLL(None, use_errno=True)
    # Users other than root may have a network namespace only within a user namespace of their own.
    # In some containers only root without a new user namespace may.
    if libc.unshare(_CLONE_NEWUSER | _CLONE_NEWNET) and libc.unshare(_CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), "a network of its own is not allowed")
    with socket.socket() as any_socket:
        request = struct.pack("16sh", b"lo", _IFF_UP)
        fcntl.ioctl(any_socket, _SIOCSIFFLAGS, request)


def end_with_parent(parent: int, signal_number: int) -> None:
    """Asks the kernel for a signal when the parent process ends; this outlasts `exec`."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal_number)
    if os.getppid() != parent:
        os._exit(1)


def _become(parent: int, program: str, arguments: list[str]) -> NoReturn:
    """Replaces this process by the program, which the kernel kills when the parent ends."""
    end_with_parent(parent, signal.SIGKILL)
    try:
        os.execv(program, [program, *arguments])
    except OSError as error:
        os.write(2, f"{program}: {error.strerror}\n".encode())
    os._exit(1)


def _relay(listener: socket.socket, port: int) -> None:
    """Connects each connection to `listener` with the port."""
    while True:
        outside, _ = listener.accept()
        inside = socket.socket()
        try:
            inside.connect(("127.0.0.1", port))
        except OSError:
            # The program does not listen yet; the caller tries again.
            inside.close()
            outside.close()
            continue
        for source, target in ((outside, inside), (inside, outside)):
            threading.Thread(target=_pump, args=(source, target), daemon=True).start()


def _pump(source: socket.socket, target: socket.socket) -> None:
    """Moves all that arrives at one socket to another, without copying it into this process."""
    reading, writing = os.pipe()
    try:
        while size := os.splice(source.fileno(), writing, _SPLICE_BYTES):
            while size:
                size -= os.splice(reading, target.fileno(), size)
    except OSError:
        pass  # One of the two has closed the connection.
    finally:
        os.close(reading)
        os.close(writing)
        for end in (source, target):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)


def _run(
    parent: int, path: pathlib.Path, port: int, program: str, arguments: list[str]
) -> NoReturn:
    """Runs the program and relays connections until it ends; ends in the same way as it."""

    def end(*_):
        shutil.rmtree(path.parent, ignore_errors=True)
        os._exit(1)

    signal.signal(signal.SIGTERM, end)
    end_with_parent(parent, signal.SIGTERM)
    # The socket belongs to the user's own directory, which exists outside of the namespace too.
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(path))
    listener.listen()
    _enter()
    relay = os.getpid()
    child = os.fork()
    if not child:
        _become(relay, program, arguments)
    threading.Thread(target=_relay, args=(listener, port), daemon=True).start()
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        if number != signal.SIGKILL:
            signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
    os._exit(os.waitstatus_to_exitcode(status))


def _main() -> None:
    if sys.argv[1] == "check":
        _enter()
        return
    parent, private, port, program, *arguments = sys.argv[1:]
    if private:
        _run(int(parent), pathlib.Path(private), int(port), program, arguments)
    else:
        _become(int(parent), program, arguments)


if __name__ == "__main__":
    _main()
