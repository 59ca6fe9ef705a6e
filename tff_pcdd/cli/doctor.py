"""Says what of tff_pcdd works on this machine, and what is missing.

    tff-pcdd doctor

A line begins with "ok", with "--" for what only some need, or with "!!" for what has to be mended.
The exit status is 1 if there is such a line.
"""

from __future__ import annotations

import os
import shutil
import socket
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from tff_pcdd import machine, outputs, stack
from tff_pcdd.cli import front_door, gpu_check
from tff_pcdd.cli.gpu_check import OK, OPTIONAL, WRONG, Finding
from tff_pcdd.runtime import launcher

# The least free space and memory with which small federations train, in GiB.
_DISK, _MEMORY = 2, 4
_PORT = 8501


def findings() -> Iterator[Finding]:
    """What was found, one after the other; TensorFlow is imported if its version fits."""
    for line in front_door.version().splitlines():
        yield Finding(OK, line)
    if problem := stack.find_problem():
        yield Finding(WRONG, problem)
    else:
        yield from gpu_check.findings()
    for check in _CHECKS:
        yield check()


def _bfloat16() -> Finding:
    slow = machine.slow_bfloat16(gpus=False)
    if slow is None:
        return Finding(OK, "the processor is fast in bfloat16: --precision=bfloat16")
    return Finding(OPTIONAL, f"{slow}; keep --precision=float32 on it")


def _memory() -> Finding:
    cores = len(os.sched_getaffinity(0))
    size = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    text = f"{cores} CPU core{'s' if cores > 1 else ''}, {size:.0f} GiB of memory"
    if size < _MEMORY:
        return Finding(WRONG, f"{text}; TensorFlow and TFF need {_MEMORY} GiB")
    return Finding(OK, text)


def _disk() -> Finding:
    here, free = Path.cwd(), shutil.disk_usage(Path.cwd()).free / 2**30
    if not os.access(here, os.W_OK):
        return Finding(WRONG, f"{here} cannot be written to; choose another --output_dir")
    if free < _DISK:
        return Finding(WRONG, f"{free:.1f} GiB are free in {here}; runs need {_DISK} GiB or more")
    return Finding(OK, f"{free:.0f} GiB are free in {here}")


def _ray() -> Finding:
    if found := stack.version("ray"):
        return Finding(OK, f"Ray {found}: --runtime=ray")
    return Finding(
        OPTIONAL,
        'no Ray, which --runtime=ray needs: make install-ray, or pip install "tff_pcdd[ray]"',
    )


def _worker() -> Finding:
    if launcher.can_isolate():
        return Finding(OK, "TFF's worker can have a network of its own: --runtime=tff")
    return Finding(
        OPTIONAL, "the kernel grants no network of its own, so --runtime=tff needs --insecure"
    )


def _port() -> Finding:
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            connection.bind(("127.0.0.1", _PORT))
        except OSError as error:
            return Finding(
                OPTIONAL, f"port {_PORT}: {error.strerror}; choose another: make serve PORT=…"
            )
    return Finding(OK, f"port {_PORT} is free for make serve")


_CHECKS: Sequence[Callable[[], Finding]] = (_bfloat16, _memory, _disk, _ray, _worker, _port)


def run(argv: Sequence[str] | None = None) -> None:
    """Prints what was found.

    Args:
        argv: the name of the program, and arguments, of which there is only --help.

    Raises:
        SystemExit: with status 1 if something has to be mended, and 2 if there are arguments.
    """
    _, *arguments = sys.argv if argv is None else argv
    if arguments:
        if arguments[0] in ("-h", "--help"):
            with outputs.printing("doctor"):
                print(__doc__)
            return
        print(f"doctor: error: {arguments[0]}: there are no flags but --help", file=sys.stderr)
        sys.exit(2)
    wrong = False
    with outputs.printing("doctor"):
        for state, text in findings():
            print(state, text)
            wrong |= state == WRONG
    if wrong:
        sys.exit(1)
