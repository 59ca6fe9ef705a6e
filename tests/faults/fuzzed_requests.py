"""Requests to the server that are damaged, hostile or absurd."""

from __future__ import annotations

import atexit
import base64
import contextlib
import copy
import functools
import http.client
import io
import json
import random
import unittest
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import processes
from tests.faults.case import SAME, Case, SilentDifference, one_line

_CASES = 100
# Values in the place of any value of a valid request.
_HOSTILE: list[Any] = [
    None, True, "", "\ud800", "\0", "a" * 100_000, [], {}, [[]], {"b64": None}, {"b64": "%"},
    {"numbers": 1, "more": 2}, -1, 1.5, 1e39, -1e308, 10**400, [1, [2]], {"": []}, "NaN",
]  # fmt: skip
_HEADERS = [
    {"Content-Type": "application/json; charset=utf-16"},
    {"Content-Type": "application/octet-stream"},
    {"Content-Type": "\x7f"},
    {"Inference-Header-Content-Length": "5"},
    {"Inference-Header-Content-Length": "-1"},
    {"Inference-Header-Content-Length": "x"},
    {"ce-id": "1", "ce-type": "a", "ce-source": "b", "ce-specversion": "1.0"},
    {"Content-Encoding": "gzip"},
    {"Expect": "200-nothing"},
    {"Host": ""},
    {"X-Many": "a" * 60_000},
]
_TARGETS = [
    ("GET", "/"), ("GET", "/v1/models"), ("GET", "/v1/models/sums"), ("GET", "/v1/models/none"),
    ("GET", "/v1/models/..%2f..%2fetc"), ("GET", "/v1/models/%00"), ("GET", "/v1/models/%ff"),
    ("POST", "/v1/models/none:predict"), ("POST", "/v1/models/:predict"),
    ("POST", "/v1/models/../../etc/passwd:predict"), ("POST", "/v1/models/sums:explain"),
    ("POST", "/v1/models/sums"), ("PUT", "/v1/models/sums:predict"),
    ("DELETE", "/v1/models/sums"), ("POST", "/v2/repository/models/sums/unload"),
    ("POST", "/v2/repository/models/sums/load"), ("POST", "/v2/repository/index"),
    ("GET", "/v2/models/sums"), ("GET", "/v2/models/sums/ready"),
    ("POST", "/v2/models/sums/infer"), ("POST", "/v2//repository/models/sums/unload"),
    ("GET", "/v2/health/live"), ("POST", "/openai/v1/completions"), ("GET", "/" + "a" * 10_000),
]  # fmt: skip


def cases(directory: Path) -> Iterator[Case]:
    if not processes.SERVING_PYTHON.exists():
        raise unittest.SkipTest("the server is not installed; run `make install-serving`")
    server = functools.cache(functools.partial(_Server, directory))

    def case(kind, name, make, *arguments):
        return Case(kind, name, lambda _: server().check(*make(*arguments)))

    for number in range(_CASES):
        for make in (_other_value, _damaged_bytes):
            name = f"{make.__name__[1:]} {number}"
            yield case("fuzzed request", name, make, random.Random(number))
        yield case("fuzzed image in a request", str(number), _damaged_image, random.Random(number))
    for headers in _HEADERS:
        yield case("request with other headers", str(headers)[:60], _with_headers, headers)
    for method, path in _TARGETS:
        name = f"{method} {path}"[:60]
        yield case("request to another address", name, _to_target, method, path)


_PREDICT = "/v1/models/sums:predict"


def _valid() -> dict[str, Any]:
    return {"signature_name": "of_numbers", "instances": [{"numbers": 1.5}, -2, 0.25]}


def _other_value(draw: random.Random):
    """A valid request with a hostile value or key somewhere."""
    body = copy.deepcopy(_valid())
    places: list[tuple[Any, Any]] = [(body, key) for key in body]
    places += [(body["instances"], index) for index in range(3)]
    places.append((body["instances"][0], "numbers"))
    parent, key = draw.choice(places)
    parent[key] = draw.choice(_HOSTILE)
    if draw.random() < 0.3:
        body[draw.choice(["inputs", "\ud800", "id", "outputs"])] = draw.choice(_HOSTILE)
    return "POST", _PREDICT, json.dumps(body).encode(), {}


def _damaged_bytes(draw: random.Random):
    """A valid request with other bytes, or without some of its bytes."""
    content = bytearray(json.dumps(_valid()).encode())
    for _ in range(draw.randint(1, 4)):
        at = draw.randrange(len(content))
        if draw.random() < 0.5:
            content[at] = draw.randrange(256)
        else:
            del content[at : at + draw.randint(1, 20)]
    types = ["application/json", "text/plain"]
    return "POST", _PREDICT, bytes(content), {"Content-Type": draw.choice(types)}


def _damaged_image(draw: random.Random):
    """Image files with other bytes, mostly in their headers."""
    from PIL import Image

    picture = Image.fromarray(np.arange(64, dtype=np.uint8).reshape(8, 8))
    buffer = io.BytesIO()
    picture.save(buffer, draw.choice(["PNG", "JPEG", "GIF", "BMP"]))
    content = bytearray(buffer.getvalue())
    for _ in range(draw.randint(0, 6)):
        content[draw.randrange(min(len(content), 60))] = draw.randrange(256)
    if draw.random() < 0.3:
        del content[draw.randint(1, len(content)) :]
    file = {"b64": base64.b64encode(content).decode()}
    body = {"instances": [file]}
    return "POST", "/v1/models/images:predict", json.dumps(body).encode(), {}


def _with_headers(headers: dict[str, str]):
    return "POST", _PREDICT, json.dumps(_valid()).encode(), headers


def _to_target(method: str, path: str):
    return method, path, json.dumps(_valid()).encode() if method == "POST" else None, {}


class _Server:
    """A server that has a model of numbers and one of image files."""

    def __init__(self, directory: Path):
        import tensorflow as tf

        module = tf.Module()

        @tf.function(input_signature=[tf.TensorSpec([None], tf.float32, name="numbers")])
        def of_numbers(numbers):
            return {"double": numbers * 2}

        @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="image_bytes")])
        def of_images(image_bytes):
            def mean(file):
                image = tf.io.decode_image(file, 3, expand_animations=False)
                return tf.reduce_mean(tf.cast(image, tf.float32))

            return {"mean": tf.map_fn(mean, image_bytes, fn_output_signature=tf.float32)}

        sums = {"serving_default": of_numbers, "of_numbers": of_numbers}
        tf.saved_model.save(module, str(directory / "sums" / "1"), sums)
        images = {"serving_default": of_images}
        tf.saved_model.save(module, str(directory / "images" / "1"), images)
        stack = contextlib.ExitStack()
        _, self._port = stack.enter_context(processes.model_server(directory, "--timeout=10"))
        atexit.register(stack.close)

    def check(self, method: str, path: str, body: bytes | None, headers: dict[str, str]) -> str:
        """Sends a request; it has to be refused in one line, or answered rightly."""
        status, answer = self._ask(method, path, body, headers)
        # 501 is for explanations, which the models do not have.
        assert status <= 501 and status != 500, f"{status}: {answer[:500]!r}"
        self._check_health()
        if status >= 400:
            if answer.startswith(b"{"):
                reason = json.loads(answer)
                return one_line(str(reason.get("error", reason.get("detail"))))
            # Of the HTTP server itself, for what is no HTTP.
            return one_line(answer.decode())
        if method == "POST":
            values = json.loads(answer, parse_constant=_no_constant)
            if "/sums" in path and "predictions" in values:
                _compare(json.loads(body or b""), values["predictions"])
        return SAME

    def _check_health(self) -> None:
        """Whatever was asked, the next valid request is answered."""
        status, answer = self._ask("POST", _PREDICT, json.dumps(_valid()).encode(), {})
        assert status == 200, answer
        _compare(_valid(), json.loads(answer)["predictions"])

    def _ask(self, method, path, body, headers) -> tuple[int, bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=30)
        with contextlib.closing(connection):
            try:
                connection.request(method, path, body, headers)
            except (http.client.InvalidURL, ValueError):
                # The client itself refuses to send it.
                return 400, b"not sent"
            response = connection.getresponse()
            return response.status, response.read()


def _compare(request: Any, predictions: list[dict[str, float]]) -> None:
    values = [
        value["numbers"] if isinstance(value, dict) else value for value in request["instances"]
    ]
    wanted = 2 * np.array(values, np.float32)
    found = np.array([prediction["double"] for prediction in predictions], np.float32)
    if wanted.shape != found.shape or not np.allclose(found, wanted, rtol=1e-6):
        raise SilentDifference(f"{request}: {predictions}")


def _no_constant(name: str) -> None:
    raise SilentDifference(f"{name} in an answer")
