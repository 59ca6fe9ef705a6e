"""Starts a worker for the runtime `remote`.

    python -m tasks.worker --port=8001

Start one on each machine, or several on one machine, and share the clients of a run among them:

    python -m tasks.train --runtime=remote --workers=localhost:8001,localhost:8002 ...

A worker executes every program that it receives, from anyone who can reach its port: it uses
neither authentication nor encryption. By default, it therefore accepts connections from this
machine only; --bind and --insecure change that. To use workers on other machines, prefer a tunnel
such as

    ssh -L 8001:localhost:8001 other-machine

The worker runs until it is interrupted (Ctrl-C or SIGTERM).
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Sequence

from tff_pcdd.cli import program
from tff_pcdd.cli.flags import Flags
from tff_pcdd.errors import SettingError
from tff_pcdd.runtime import RuntimeStartError, exposure, process

_GROUP = "Worker"


def define(flags: Flags) -> None:
    """Defines the program's flags."""
    flags.add(int, "port", None, "Port to listen on, 0 for any free one; required.", _GROUP)
    flags.add(
        str,
        "bind",
        "127.0.0.1",
        "Address of the network interface to listen on, such as 127.0.0.1, ::1, 0.0.0.0 or "
        "10.0.0.5. An address that other machines can reach needs --insecure.",
        _GROUP,
    )
    flags.add(
        bool,
        "insecure",
        False,
        "Confirm that anyone who can reach the port may run programs on this machine: the worker "
        "does not authenticate its callers.",
        _GROUP,
    )
    flags.add_choice(
        "engine",
        "inprocess",
        ("inprocess", "tff"),
        "Engine of the worker: inprocess (as in the runtime of that name, on GPUs if there are "
        "any) or tff (TFF's C++ worker, which listens on every network interface and needs "
        "--insecure).",
        _GROUP,
    )
    flags.add(
        int,
        "client_parallelism",
        None,
        "Number of clients that train at the same time. By default, the engine inprocess derives "
        "it from the cores and devices, and the engine tff trains all clients at the same time.",
        _GROUP,
    )
    flags.add(
        str,
        "devices",
        None,
        "Devices on which the engine inprocess trains the clients, such as GPU:0,GPU:1; by "
        "default all GPUs, or the CPU if there are none.",
        _GROUP,
    )


def main(flags: Flags) -> None:
    """Listens until the process is interrupted."""
    port, bind, engine = flags.required("port"), flags["bind"], flags["engine"]
    if not 0 <= port < 2**16:
        raise SettingError("port", port, f"must be from 0 to {2**16 - 1}")
    exposure.check_bind(bind, flags["insecure"], engine)
    parallelism, devices = flags["client_parallelism"], flags["devices"]
    try:
        if engine == "tff":
            become_tff_worker(port, parallelism)
        else:
            serve_inprocess(bind, port, parallelism, devices)
    except RuntimeStartError as error:
        raise SettingError("port", port, str(error)) from error


def become_tff_worker(port: int, client_parallelism: int | None) -> None:
    """Replaces this process by TFF's C++ worker."""
    binary = process.find_binary()
    port = port or process.unused_port()
    process.check_port(port)
    limit = client_parallelism or -1
    print(f"A worker starts on port {port} of every network interface.", flush=True)
    os.execv(
        binary,
        [str(binary), f"--port={port}", f"--max_concurrent_computation_calls={limit}"],
    )


def serve_inprocess(
    bind: str, port: int, client_parallelism: int | None, devices: str | None
) -> None:
    """Serves the runtime `inprocess` until the process is interrupted."""
    from tff_pcdd.runtime import inprocess, service

    context = inprocess.create_context(
        client_parallelism=client_parallelism,
        devices=tuple(devices.split(",")) if devices else (),
    )
    server, port = service.serve(context.executor_factory, bind, port)
    print(f"A worker is ready on port {port} of {bind}.", flush=True)
    ended = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: ended.set())
    ended.wait()
    server.stop(grace=None)
    # Does not wait for a running computation: nobody is left to receive its result.
    os._exit(0)


def run(argv: Sequence[str] | None = None) -> None:
    """Entry point of the console script."""
    program.run(__doc__, define, main, argv, interrupted="the same command starts it again")


if __name__ == "__main__":
    run()
