"""Section `serving`: the overhead of the server that `make serve` starts."""

from __future__ import annotations

import contextlib
import http.client
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from benchmarks import measure, processes
from benchmarks.report import Section, Table
from benchmarks.workloads import Workload
from tff_pcdd import export
from tff_pcdd.training import RunOptions, run_experiment

_TITLE = "Serving"
_TEXT = """\
KServe's Python server with an exported Simple-CNN, compared with direct ("bare") calls of the same
SavedModel in the process of the benchmark. Each client is a thread of that process with its own
connection, and waits for the response before it sends the next request. A request contains random
images of 32×32×3 as JSON, which is prepared in advance; a direct call takes a tensor. Clients,
server and TensorFlow share the cores. Requests per second are medians over {repeats} repeats,
milliseconds are quantiles over the requests of all repeats, and the ratio is the median of the
ratios within a repeat. Parsing JSON makes batches slow (32 images are 0.5 MB of text); if that
matters, use TensorFlow Serving."""
_NOT_INSTALLED = "not measured: the server is not installed; run `make install-serving`"

_WORKLOAD = Workload("simple_cnn", 2, 32, 32, 1)
# Images per request, concurrent clients, requests per repeat.
_LOADS = ((1, 1, 400), (1, 8, 800), (32, 1, 80), (32, 8, 160))
_QUICK_LOADS = ((1, 1, 4), (2, 2, 4))


class _Load:
    """Concurrent clients that repeat the same call.

    Args:
        open_client: returns a context manager that yields the call of a client.
        clients: number of concurrent clients.
        calls: number of calls of all clients together.

    Attributes:
        latencies: seconds of each call, a list per repeat.
    """

    def __init__(self, open_client: Callable, clients: int, calls: int):
        self._open_client, self._clients, self._calls = open_client, clients, calls
        self.latencies: list[list[float]] = []

    def __call__(self) -> None:
        with ThreadPoolExecutor(self._clients) as pool:
            parts = list(pool.map(self._run_client, range(self._clients)))
        self.latencies.append([seconds for part in parts for seconds in part])

    def _run_client(self, _: int) -> list[float]:
        seconds = []
        with self._open_client() as call:
            for _ in range(self._calls // self._clients):
                start = time.perf_counter()
                call()
                seconds.append(time.perf_counter() - start)
        return seconds


def run(plan: measure.Plan) -> Section:
    """Measures the server and direct calls, if the server is installed."""
    text = _TEXT.format(repeats=plan.repeats)
    if not processes.SERVING_PYTHON.exists():
        table = Table(_TITLE, {"": "note"}, [{"note": _NOT_INSTALLED}])
        return Section(_TITLE, text, [table])
    with tempfile.TemporaryDirectory() as directory:
        export_dir = _export(Path(directory))
        model = tf.saved_model.load(str(export_dir / "global" / "1"))
        with processes.model_server(export_dir) as (_, port):
            rows = [
                _measure(port, model.signatures["serving_default"], load, plan.repeats)
                for load in (_QUICK_LOADS if plan.quick else _LOADS)
            ]
    columns = {
        "images": "images",
        "clients": "clients",
        "server, requests/s": "rate",
        "p50 (ms)": "p50",
        "p99 (ms)": "p99",
        "bare, calls/s": "bare_rate",
        "bare p50 (ms)": "bare_p50",
        "bare p99 (ms)": "bare_p99",
        "server / bare": "ratio",
    }
    picture = (
        "requests per second (images per request × clients)",
        {f"{row['images']} × {row['clients']}": row["rate"] for row in rows},
        None,
    )
    return Section(_TITLE, text, [Table(_TITLE, columns, rows)], picture=picture)


def _export(directory: Path) -> Path:
    """Trains and exports a global model; returns the export directory."""
    config = _WORKLOAD.config(rounds=1)
    run_dir, export_dir = directory / "run", directory / "exported"
    run_experiment(config, run_dir, RunOptions(progress=False, tensorboard=False))
    export.export_run(run_dir, export_dir, export.ExportOptions(clients="none"), config=config)
    return export_dir


def _measure(port: int, signature: Callable, load: tuple[int, int, int], repeats: int) -> dict:
    images, clients, calls = load
    batch = np.random.default_rng(0).integers(0, 256, (images, 32, 32, 3), np.uint8)
    body, tensor = json.dumps({"instances": batch.tolist()}).encode(), tf.constant(batch)

    def call_bare():
        for value in signature(images=tensor).values():
            value.numpy()

    contenders = {
        "server": _Load(lambda: _connection(port, body), clients, calls),
        "bare": _Load(lambda: contextlib.nullcontext(call_bare), clients, calls),
    }
    label = f"serving, {images} images, {clients} clients"
    seconds = measure.alternate(contenders, repeats, label)
    row: dict[str, Any] = {"images": images, "clients": clients}
    for prefix, name in (("", "server"), ("bare_", "bare")):
        # The first call, which `alternate` does not count, is left out.
        latencies = np.concatenate(contenders[name].latencies[1:])
        row[f"{prefix}seconds"] = seconds[name]
        row[f"{prefix}rate"] = statistics.median(calls / s for s in seconds[name])
        for key, q in (("p50", 0.5), ("p99", 0.99)):
            row[f"{prefix}{key}"] = 1000 * float(np.quantile(latencies, q))
    row["ratio"] = measure.paired_ratio(seconds["bare"], seconds["server"])
    return row


@contextlib.contextmanager
def _connection(port: int, body: bytes):
    """Yields a call that sends a predict request and reads the response."""
    connection = http.client.HTTPConnection("127.0.0.1", port)

    def call():
        connection.request("POST", "/v1/models/global:predict", body)
        response = connection.getresponse()
        answer = response.read()
        if response.status != 200:
            raise RuntimeError(f"the server answered {response.status}: {answer.decode()}")

    with contextlib.closing(connection):
        yield call
