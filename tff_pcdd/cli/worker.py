"""Starts a worker for the runtime `remote`.

    python -m tasks.worker --port=8001

and then, as often as there are machines or cores to share the clients among,

    python -m tasks.train --runtime=remote --workers=localhost:8001,localhost:8002 ...

A worker runs what it is sent, for everyone who can reach its port: there is neither authentication
nor encryption. So it listens on this machine only, unless it is told otherwise with --bind and
--insecure. To use workers on other machines, prefer a tunnel such as

    ssh -L 8001:localhost:8001 other-machine

It runs until it is interrupted (Ctrl-C or SIGTERM).
"""

import os
import signal
import threading

from absl import flags

from tasks import cli
from tff_pcdd.runtime import RuntimeStartError, exposure, process

cli.define(
    flags.DEFINE_integer,
    "port",
    None,
    "Port to listen on, 0 for any that is free; required.",
    group="Worker",
)
cli.define(
    flags.DEFINE_string,
    "bind",
    "127.0.0.1",
    "Address of the network interface to listen on, such as 127.0.0.1, ::1, 0.0.0.0 or 10.0.0.5. "
    "One that other machines can reach needs --insecure.",
    group="Worker",
)
cli.define(
    flags.DEFINE_boolean,
    "insecure",
    False,
    "Accept that everyone who can reach the port can run programs here: the worker's gRPC is not "
    "authenticated.",
    group="Worker",
)
cli.define(
    lambda name, default, text: flags.DEFINE_enum(name, default, ["inprocess", "tff"], text),
    "engine",
    "inprocess",
    "What computes: inprocess (as the runtime of that name, on GPUs where there "
    "are) or tff (TFF's C++ worker; it listens on every network interface and needs --insecure).",
    group="Worker",
)
cli.define(
    flags.DEFINE_integer,
    "client_parallelism",
    None,
    "Clients that train at the same time; with the engine inprocess chosen from cores and devices "
    "by default, with tff all.",
    group="Worker",
)
cli.define(
    flags.DEFINE_string,
    "devices",
    None,
    "Devices that take clients in turn, as GPU:0,GPU:1, with the engine inprocess; all GPUs, else "
    "the CPU, by default.",
    group="Worker",
)


def main():
    """Listens until the process is interrupted."""
    port, bind, engine = cli.required("port"), cli.FLAGS.bind, cli.FLAGS.engine
    if not 0 <= port < 2**16:
        raise cli.OptionError(f"--port={port}: must be from 0 to {2**16 - 1}")
    exposure.check_bind(bind, cli.FLAGS.insecure, engine)
    try:
        if engine == "tff":
            become_tff_worker(port)
        else:
            serve_inprocess(bind, port)
    except RuntimeStartError as error:
        raise cli.OptionError(error) from error


def become_tff_worker(port: int) -> None:
    """Replaces this process by TFF's C++ worker."""
    binary = process.find_binary()
    port = port or process.unused_port()
    process.check_port(port)
    limit = cli.FLAGS.client_parallelism or -1
    print(f"A worker starts on port {port} of every network interface.", flush=True)
    os.execv(
        binary,
        [str(binary), f"--port={port}", f"--max_concurrent_computation_calls={limit}"],
    )


def serve_inprocess(bind: str, port: int) -> None:
    """Serves the runtime `inprocess` until the process is interrupted."""
    from tff_pcdd.runtime import inprocess, service

    devices = cli.FLAGS.devices
    context = inprocess.create_context(
        client_parallelism=cli.FLAGS.client_parallelism,
        devices=tuple(devices.split(",")) if devices else (),
    )
    server, port = service.serve(context.executor_factory, bind, port)
    print(f"A worker is ready on port {port} of {bind}.", flush=True)
    ended = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: ended.set())
    ended.wait()
    server.stop(grace=None)
    # A computation under way has nobody left to report to, and is not waited for.
    os._exit(0)


def run():
    """Entry point of the console script."""
    cli.run(main)


if __name__ == "__main__":
    run()
