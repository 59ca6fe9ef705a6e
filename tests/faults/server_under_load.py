"""Measures the server while others hold connections, send headers without end, and many images.

    python -m tests.faults.server_under_load [--repeat]

Ten clients ask one question after another, alone and beside an attacker in turn, three times. The
attacker has 300 connections that send a byte a second, 100 MB of headers, and a request with 60,000
images of 1×1; with --repeat, headers and requests without a pause.
Then the server gets SIGINT. The program prints the times and the memory, and ends with status 1 if
they are beyond the bounds below. Each client and the attacker have addresses of their own, as on
different machines. The attacker has the lowest priority (nice 19), because it would have processors
of its own, too; what it takes nevertheless is printed. `make faults` does not run this program: its
times need a machine that is otherwise idle.
"""

from __future__ import annotations

import base64
import collections
import concurrent.futures
import contextlib
import http.client
import io
import itertools
import json
import os
import re
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks import processes

# Bounds: times of the answers beside the attack and alone, MB of memory, seconds until the end.
_SLOWER = 2.0
_MOST_MB = 1500
_MOST_SECONDS = 5.0

_CLIENTS, _REQUESTS, _TURNS = 10, 40, 3
_CONNECTIONS, _HEADER_BYTES, _IMAGES = 300, 100_000_000, 60_000
_ATTACKER = "127.0.0.99"
_PROCESSES = "server", "attacker", "clients"


def _export(directory: Path) -> None:
    """A model that decodes images, as exported ones do."""
    import tensorflow as tf

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="image_bytes")])
    def of_images(image_bytes):
        def mean(file):
            image = tf.io.decode_image(file, 3, expand_animations=False)
            return tf.reduce_mean(tf.cast(image, tf.float32))

        return {"mean": tf.map_fn(mean, image_bytes, fn_output_signature=tf.float32)}

    signatures = {"serving_default": of_images}
    tf.saved_model.save(tf.Module(), str(directory / "images" / "1"), signatures)


def _request(side: int, number: int) -> bytes:
    """A request with grey images."""
    from PIL import Image

    file = io.BytesIO()
    Image.new("L", (side, side), 100).save(file, "PNG")
    instance = {"b64": base64.b64encode(file.getvalue()).decode()}
    return json.dumps({"instances": [instance] * number}).encode()


def _ask(port: int, body: bytes, address: str) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection(
        "127.0.0.1", port, timeout=120, source_address=(address, 0)
    )
    with contextlib.closing(connection):
        connection.request("POST", "/v1/models/images:predict", body)
        answer = connection.getresponse()
        return answer.status, answer.read()


def _measure(port: int) -> list[float]:
    """The seconds of each answer to ten clients."""
    body = _request(64, 32)

    def client(number: int) -> list[float]:
        times = []
        for _ in range(_REQUESTS):
            start = time.monotonic()
            status, answer = _ask(port, body, f"127.0.0.{10 + number}")
            times.append(time.monotonic() - start)
            assert status == 200 and len(json.loads(answer)["predictions"]) == 32, answer[:200]
        return times

    with concurrent.futures.ThreadPoolExecutor(_CLIENTS) as pool:
        return list(itertools.chain(*pool.map(client, range(_CLIENTS))))


def _attack(port: int, repeat: bool) -> None:
    """Attacks in this process until it is killed; prints what it has done."""
    os.nice(19)

    def connect() -> socket.socket:
        return socket.create_connection(("127.0.0.1", port), 30, (_ATTACKER, 0))

    def headers() -> None:
        sent = 0
        while sent < _HEADER_BYTES:
            with contextlib.suppress(OSError), connect() as connection:
                connection.sendall(b"GET / HTTP/1.1\r\nA: ")
                while sent < _HEADER_BYTES:
                    connection.sendall(b"a" * 65536)
                    sent += 65536
        print("headers", flush=True)

    def images() -> None:
        with contextlib.suppress(OSError, http.client.HTTPException):
            print(f"images {_ask(port, body, _ATTACKER)[0]}", flush=True)

    def call(function: Callable[[], None]) -> None:
        function()
        while repeat:
            function()

    body = _request(1, _IMAGES)
    slow: list[socket.socket] = []
    started = False
    while True:
        while len(slow) < _CONNECTIONS:
            slow.append(connect())
            slow[-1].sendall(b"POST /v1/models/images:predict HTTP/1.1\r\nA: ")
        if not started:
            print("begins", flush=True)
            for target in (headers, images):
                threading.Thread(target=call, args=(target,), daemon=True).start()
            started = True
        time.sleep(1)
        for connection in [*slow]:
            try:
                connection.sendall(b"a")
            except OSError:
                slow.remove(connection)
                connection.close()


def _seconds(pid: int) -> float:
    """The processor time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def main() -> None:
    """Measures, prints, and compares with the bounds."""
    with tempfile.TemporaryDirectory() as directory:
        _export(Path(directory))
        command = [processes.SERVING_PYTHON, processes.SERVING_ADAPTER, "--port=0"]
        server = subprocess.Popen(
            [*map(str, command), f"--export_dir={directory}"], stdout=subprocess.PIPE, text=True
        )
        line = processes.standard_output(server).readline()
        port = int(re.findall(r":(\d+)/", line)[0])
        _measure(port)
        alone, beside, said = [], [], []
        idle, used, elapsed = processes.peak_memory(server.pid), [0.0] * 3, 0.0
        undisturbed = 0.0
        for turn in range(_TURNS):
            undisturbed -= _seconds(server.pid)
            alone += _measure(port)
            undisturbed += _seconds(server.pid)
            attacker = subprocess.Popen(
                [sys.executable, "-m", "tests.faults.server_under_load", str(port), *sys.argv[1:]],
                stdout=subprocess.PIPE,
                text=True,
            )
            processes.standard_output(attacker).readline()
            pids = server.pid, attacker.pid, os.getpid()
            begin, before = time.monotonic(), list(map(_seconds, pids))
            beside += _measure(port)
            elapsed += time.monotonic() - begin
            after = map(_seconds, pids)
            used = [a + b - c for a, b, c in zip(used, after, before, strict=True)]
            if turn < _TURNS - 1:
                attacker.kill()
                said += attacker.communicate()[0].split("\n")
        peak = processes.peak_memory(server.pid)
        begin = time.monotonic()
        server.send_signal(signal.SIGINT)
        try:
            server.wait(30)
        finally:
            end = time.monotonic() - begin
            attacker.kill()
            server.kill()
        said += attacker.communicate()[0].split("\n")
    means = statistics.mean(alone), statistics.mean(beside)
    for what, times, mean in zip(("alone", "beside"), (alone, beside), means, strict=True):
        median, most = statistics.median(times), max(times)
        print(f"answers {what}: mean {mean:.3f} s, median {median:.3f} s, max {most:.3f} s")
    whole = elapsed * len(os.sched_getaffinity(0))
    shares = [f"{name} {share / whole:.0%}" for name, share in zip(_PROCESSES, used, strict=True)]
    work = [1000 * seconds / len(alone) for seconds in (undisturbed, used[0])]
    print(f"processor time of the server for an answer: {work[0]:.1f} and {work[1]:.1f} ms")
    print(f"processor time beside: {', '.join(shares)} of {len(os.sched_getaffinity(0))} cores")
    print(f"memory: {idle:.0f} MB alone, {peak:.0f} MB beside; end after {end:.1f} s")
    print(
        f"attack: {said.count('headers')} × 100 MB, answers "
        f"{dict(collections.Counter(line for line in said if line.startswith('images')))}"
    )
    slower = means[1] / means[0]
    if slower > _SLOWER or peak > _MOST_MB or end > _MOST_SECONDS:
        sys.exit(f"beyond the bounds: {slower:.1f} times as slow, {peak:.0f} MB, {end:.1f} s")


if __name__ == "__main__":
    if sys.argv[1:] and sys.argv[1].isdecimal():
        _attack(int(sys.argv[1]), "--repeat" in sys.argv)
    else:
        main()
