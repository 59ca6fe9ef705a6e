"""KServe's server answers like the exported models, and explains why it rejects requests."""

import base64
import concurrent.futures
import contextlib
import io
import json
import re
import shutil
import signal
import socket
import subprocess
import threading
import time
import urllib.error
import urllib.request

import numpy as np
import PIL.Image
import pytest
import tensorflow as tf

from benchmarks import processes
from tff_pcdd.training.run_directory import read_config

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not processes.SERVING_PYTHON.exists(),
        reason="the server is not installed; run `make install-serving`",
    ),
]

# Ignores proxies set in the environment.
_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))


_DIGIT = np.zeros((8, 8, 1)).tolist()
_BYTES = {"signature_name": "serving_bytes"}
_PICTURE = np.arange(0, 256, 4, np.uint8).reshape(8, 8)


def _content(format, pixels=_PICTURE, **options):
    """An image file, in base64."""
    file = io.BytesIO()
    PIL.Image.fromarray(pixels).save(file, format, **options)
    return {"b64": base64.b64encode(file.getvalue()).decode()}


_DICOM = {"b64": base64.b64encode(bytes(128) + b"DICM").decode()}
_HALF = _content("TIFF")
_HALF["b64"] = _HALF["b64"][:120]


class Client:
    """An HTTP client of a server on this machine."""

    def __init__(self, port):
        self.port = port
        self._root = f"http://127.0.0.1:{port}/v1/models"

    def get(self, path=""):
        """Status and JSON of the answer."""
        return self._open(urllib.request.Request(self._root + path))

    def predict(self, model, body, content_type="application/json"):
        """Status and JSON of the answer; a body that is not bytes is sent as JSON."""
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        headers = {"Content-Type": content_type}
        return self._open(urllib.request.Request(f"{self._root}/{model}:predict", data, headers))

    def predict_patiently(self, model, body):
        """As `predict`, again and again while a busy machine has no time for the request."""
        while (answer := self.predict(model, body))[0] in (408, 503, 504):
            pass
        return answer

    def post(self, path, body):
        """Status and JSON of the answer to a request outside of the models' URLs."""
        root = self._root.removesuffix("/v1/models")
        return self._open(urllib.request.Request(root + path, body))

    def _open(self, request):
        try:
            with _OPENER.open(request) as response:
                return response.status, json.load(response)
        except urllib.error.HTTPError as error:
            return error.code, json.load(error)


def write_sums(directory, version):
    """Writes a model with integer, float and text inputs and simple outputs."""
    module = tf.Module()

    @tf.function(input_signature=[tf.TensorSpec([None, 2], tf.uint8, name="images")])
    def of_images(images):
        total = tf.reduce_sum(tf.cast(images, tf.int64), axis=1)
        return {"total": total, "version": tf.fill(tf.shape(total), version)}

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="texts")])
    def of_texts(texts):
        return {"length": tf.strings.length(texts), "label": texts}

    @tf.function(input_signature=[tf.TensorSpec([None], tf.float32, name="numbers")])
    def of_numbers(numbers):
        return {"half": numbers / 2, "double": numbers * 2}

    signatures = {"serving_default": of_images, "of_texts": of_texts, "of_numbers": of_numbers}
    tf.saved_model.save(module, str(directory / str(version)), signatures)


@pytest.fixture(scope="module")
def export_dir(exported, tmp_path_factory):
    """An export, plus another model that has two versions."""
    directory = tmp_path_factory.mktemp("serving") / "exported"
    shutil.copytree(exported["fedgela"], directory)
    for version in (9, 10):
        write_sums(directory / "sums", version)
    # As left behind by a killed export.
    shutil.copytree(directory / "sums" / "9", directory / "sums" / ".11.99.tmp")
    return directory


@pytest.fixture(scope="module")
def server(export_dir):
    """The first line that the server prints, and a client."""
    with processes.model_server(export_dir) as (line, port):
        yield line, Client(port)


@pytest.fixture(scope="module")
def client(server):
    return server[1]


@pytest.fixture(scope="module")
def images(runs):
    """Stored images of digits."""
    return read_config(runs["fedgela"]).data.build().test.x


@pytest.fixture(scope="module")
def own_answers(export_dir):
    """Calls a SavedModel in this process; returns NumPy arrays by name."""

    def call(folder, signature, **inputs):
        model = tf.saved_model.load(str(export_dir / folder / "1"))
        answers = model.signatures[signature](**{k: tf.constant(v) for k, v in inputs.items()})
        return {name: value.numpy() for name, value in answers.items()}

    return call


def assert_same(columns, expected):
    """Checks that lists from JSON equal arrays up to rounding."""
    assert set(columns) == set(expected)
    for name, values in expected.items():
        if name.endswith("label"):
            assert columns[name] == [label.decode() for label in values]
        else:
            np.testing.assert_allclose(columns[name], values, atol=1e-5)


def to_columns(predictions):
    """Converts rows with the same names to columns."""
    assert len({tuple(sorted(row)) for row in predictions}) == 1
    return {name: [row[name] for row in predictions] for name in predictions[0]}


def test_server_has_the_models_of_models_config(server, export_dir):
    line, client = server
    listed = re.findall(r'name: "(.+)"', (export_dir / "models.config").read_text())
    names = sorted([*listed, "sums"])
    assert len(names) == 5
    assert line.endswith(f"/v1/models: {', '.join(names)}\n")
    status, answer = client.get()
    assert (status, sorted(answer["models"])) == (200, names)
    assert client.get("/global") == (200, {"name": "global", "ready": True})


@pytest.mark.parametrize(("model", "folder"), [("global", "global"), ("personal-2", "personal/2")])
def test_answers_equal_those_of_the_model(model, folder, client, own_answers, images):
    """The input is given in every way that the API permits."""
    expected = own_answers(folder, "serving_default", images=images)
    assert ("own_probabilities" in expected) == (model == "personal-2")
    values = images.tolist()
    for instances in (values, [{"images": value} for value in values]):
        body = {"instances": instances, "signature_name": "serving_default"}
        status, answer = client.predict(model, body)
        assert (status, list(answer)) == (200, ["predictions"])
        assert_same(to_columns(answer["predictions"]), expected)
    for inputs in (values, {"images": values}):
        status, answer = client.predict(model, {"inputs": inputs})
        assert (status, list(answer)) == (200, ["outputs"])
        assert_same(answer["outputs"], expected)


@pytest.mark.parametrize(("model", "folder"), [("global", "global"), ("personal-2", "personal/2")])
def test_image_files_are_sent_as_base64(model, folder, client, own_answers, images):
    pictures = np.round(images[:20] * (255 / 16)).astype(np.uint8)
    files = [tf.io.encode_png(picture).numpy() for picture in pictures]
    expected = own_answers(folder, "serving_bytes", image_bytes=files)
    encoded = [{"b64": base64.b64encode(file).decode()} for file in files]
    for instances in (encoded, [{"image_bytes": value} for value in encoded]):
        body = {"signature_name": "serving_bytes", "instances": instances}
        status, answer = client.predict(model, body)
        assert status == 200, answer
        assert_same(to_columns(answer["predictions"]), expected)


def assert_one_answer(client, files):
    status, answer = client.predict("global", {**_BYTES, "instances": files})
    assert status == 200, answer
    probabilities = [row["probabilities"] for row in answer["predictions"]]
    np.testing.assert_allclose(probabilities, probabilities[:1] * len(files), atol=1e-6)


def test_files_that_models_do_not_read(client):
    others = [_content(format) for format in ("TIFF", "BMP", "GIF")]
    packed = _content("TIFF", compression="tiff_lzw")
    assert_one_answer(client, [_content("PNG"), *others, packed, _content("WEBP", lossless=True)])


def test_photos_are_turned_upright(client):
    exif = PIL.Image.Exif()
    exif[0x0112] = 6
    # Viewers turn the stored pixels clockwise.
    stored = np.rot90(_PICTURE).copy()
    turned = [_content(format, stored, exif=exif) for format in ("PNG", "TIFF")]
    webp = _content("WEBP", stored, exif=exif, lossless=True)
    assert_one_answer(client, [_content("PNG"), *turned, webp])


def test_base64_of_any_kind(client):
    (plain,) = _content("PNG", np.full((8, 8), 251, np.uint8)).values()
    wrapped = "\n".join(plain[start : start + 20] for start in range(0, len(plain), 20))
    for_urls = plain.replace("+", "-").replace("/", "_").rstrip("=")
    assert for_urls != plain
    assert_one_answer(client, [{"b64": text} for text in (plain, wrapped + "\n", for_urls)])


def test_newest_version_with_integer_float_and_text_inputs(client):
    status, answer = client.predict("sums", {"instances": [[255, 0], [1, 2]]})
    assert status == 200, answer
    assert answer["predictions"] == [{"total": 255, "version": 10}, {"total": 3, "version": 10}]
    answer = client.predict("sums", {"signature_name": "of_numbers", "instances": [1, -2.5]})
    assert answer == (
        200, {"predictions": [{"half": 0.5, "double": 2}, {"half": -1.25, "double": -5}]}
    )  # fmt: skip
    texts = ["so", "wär", {"b64": base64.b64encode("è".encode()).decode()}]
    status, answer = client.predict("sums", {"signature_name": "of_texts", "inputs": texts})
    assert (status, answer) == (
        200, {"outputs": {"length": [2, 4, 2], "label": ["so", "wär", "è"]}}
    )  # fmt: skip


@pytest.mark.parametrize("parts", [1, 2], ids=["whole", "headers first"])
def test_a_request_for_http_2_is_answered_in_http_1(parts, client):
    """As Java's HttpClient and `curl --http2` send it; uvicorn would drop the body."""
    body = b'{"instances": [[4, 5]]}'
    lines = ["POST /v1/models/sums:predict HTTP/1.1", "Host: a", f"Content-Length: {len(body)}"]
    lines += ["Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAMAAABk"]
    headers = "\r\n".join([*lines, "", ""]).encode()
    with socket.create_connection(("127.0.0.1", client.port)) as connection:
        connection.settimeout(30)
        for _ in range(2):  # The connection goes on.
            if parts == 1:
                connection.sendall(headers + body)
            else:
                connection.sendall(headers)
                time.sleep(0.2)
                connection.sendall(body)
            answer = b""
            while not answer.endswith(b"]}"):
                answer += connection.recv(10_000)
            assert answer.startswith(b"HTTP/1.1 200 OK")
            assert json.loads(answer.partition(b"\r\n\r\n")[2])["predictions"][0]["total"] == 9


def test_many_texts_in_the_place_of_numbers_cost_no_memory(client):
    """As an array of texts, these would have 40 GB."""
    texts = ["a" * 1_000_000, *["a"] * 9_999]
    status, answer = client.predict("sums", {"instances": texts})
    assert (status, list(answer)) == (400, ["error"])
    status, answer = client.predict("sums", {"instances": [[text, 1] for text in texts]})
    assert (status, answer["error"].partition(":")[0]) == (400, "images")


@pytest.mark.parametrize("content_type", ["application/json", "text/plain"])
def test_whole_numbers_of_more_than_64_bits_are_numbers(content_type, client):
    """JavaScript writes numbers below 1e21 without an exponent."""
    body = {"signature_name": "of_numbers", "inputs": [2**66, -(2**68), 1.5]}
    status, answer = client.predict("sums", body, content_type)
    assert (status, answer["outputs"]["half"]) == (200, [2.0**65, -(2.0**67), 0.75])
    status, answer = client.predict("sums", {**body, "inputs": [10**400]}, content_type)
    assert (status, list(answer)) == (400, ["error"])


def test_answers_that_are_not_finite_are_refused(client):
    body = {"signature_name": "of_numbers", "instances": [1, 3e38]}
    status, answer = client.predict("sums", body)
    assert (status, answer) == (
        400,
        {"error": "numbers: the answer to one of the values is not finite"},
    )


def test_no_samples_have_no_answers(client):
    assert client.predict("global", {"instances": []}) == (200, {"predictions": []})
    status, answer = client.predict("sums", {"signature_name": "of_texts", "inputs": []})
    assert (status, answer) == (200, {"outputs": {"label": [], "length": []}})


def test_json_is_accepted_with_any_content_type(client):
    """`curl -d` sends the content type of a form, which TensorFlow Serving ignores."""
    for content_type in ("application/x-www-form-urlencoded", "text/plain"):
        status, answer = client.predict("sums", b'{"instances": [[4, 5]]}', content_type)
        assert (status, answer["predictions"][0]["total"]) == (200, 9)


_NUMBERS, _TEXTS = {"signature_name": "of_numbers"}, {"signature_name": "of_texts"}


@pytest.mark.parametrize(
    ("model", "body", "reason"),
    [
        ("global", {}, "either instances or inputs"),
        ("global", {"instances": [_DIGIT], "inputs": [_DIGIT]}, "either instances or inputs"),
        ("global", [_DIGIT], "not a JSON object"),
        ("global", {"instances": 5}, "instances: must be a list of images"),
        ("global", {"inputs": {"b64": "AAAA"}}, "inputs: must be a list"),
        ("global", {"instances": [_DIGIT[:7]]}, "shape [1, 7, 8, 1], not [batch, 8, 8, 1]"),
        ("global", {"instances": _DIGIT}, "shape [8, 8, 1], not [batch, 8, 8, 1]"),
        ("global", {"instances": [_DIGIT, _DIGIT[:7]]}, "images: has lists of different lengths"),
        ("global", {"instances": [{"pixels": _DIGIT}]}, "instances[0]: has pixels instead of im"),
        ("global", {"instances": [_DIGIT, {}]}, "instances[1]: has nothing instead of images"),
        ("global", {"inputs": {"pixels": [_DIGIT]}}, "inputs: has pixels instead of images"),
        ("global", {"signature_name": "resize", "instances": [_DIGIT]}, "'resize' is not one of"),
        ("global", {"signature_name": ["a"], "instances": [_DIGIT]}, "['a'] is not one of"),
        ("global", {"instances": [[[["0"]] * 8] * 8]}, "images: not all values are whole numbers"),
        ("sums", {**_NUMBERS, "instances": [1, "2"]}, "numbers: not all values are numbers"),
        ("sums", {**_NUMBERS, "instances": [True, False]}, "numbers: not all values are numbers"),
        ("sums", {**_NUMBERS, "instances": [None]}, "numbers: not all values are numbers"),
        ("sums", {"instances": [[1, 2.5]]}, "images: not all values are whole numbers from 0 to"),
        ("sums", {"instances": [[1, 256]]}, "whole numbers from 0 to 255"),
        ("sums", {"instances": [[-1, 1]]}, "whole numbers from 0 to 255"),
        ("sums", {"instances": [[1, "2"]]}, "whole numbers from 0 to 255"),
        ("sums", {**_TEXTS, "instances": [3]}, "texts: not all values are strings or"),
        ("global", {**_BYTES, "instances": [{"b64": "%"}]}, "a value of b64 is not base64"),
        ("global", {**_BYTES, "instances": [{"b64": 7}]}, "a value of b64 is not base64"),
        ("global", {**_BYTES, "instances": [_HALF]}, "image_bytes[0]: is broken: not a whole im"),
        ("global", {**_BYTES, "instances": [{"b64": "AAAA"}]}, "Unknown image file format"),
        ("global", {**_BYTES, "instances": [_DICOM]}, "image_bytes[0]: is a DICOM file, which has"),
        ("sums", {**_NUMBERS, "instances": [1e39]}, "numbers of at most 3.4e+38"),
        ("sums", {**_NUMBERS, "instances": [3.4028235e38]}, "the answer to one of the values is"),
    ],
)
def test_bad_requests_are_answered_with_the_reason(model, body, reason, client):
    status, answer = client.predict(model, body)
    assert (status, list(answer)) == (400, ["error"])
    assert reason in answer["error"]
    assert "\n" not in answer["error"]


@pytest.mark.parametrize("content_type", ["application/json", "application/x-www-form-urlencoded"])
@pytest.mark.parametrize("body", [b"", b'{"instances": [', b"\xff\xfe", b"{'instances': []}"])
def test_invalid_json_is_answered_with_status_400(body, content_type, client):
    status, answer = client.predict("global", body, content_type)
    assert (status, list(answer)) == (400, ["error"])
    assert re.search("not JSON|Unrecognized request format", answer["error"])


@pytest.mark.parametrize("content_type", ["application/json", "application/x-www-form-urlencoded"])
@pytest.mark.parametrize("opening", [b"[", b'{"instances":', b'{"instances":[['])
def test_deeply_nested_json_is_answered_with_status_400(opening, content_type, client):
    status, answer = client.predict("global", opening * 100_000, content_type)
    assert (status, list(answer)) == (400, ["error"])


def test_numbers_beyond_any_type(client):
    for number in (b"1e999", b"-1e999", b"NaN", b"9" * 400):
        body = b'{"signature_name": "of_numbers", "instances": [%s]}' % number
        status, answer = client.predict("sums", body, "text/plain")
        assert (status, list(answer)) == (400, ["error"]), number


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ({**_TEXTS, "instances": ["\ud800"]}, "texts: not all values are strings or"),
        ({"instances": [{"\ud800": 1}]}, "instances[0]: has \\ud800 instead of images"),
        ({"signature_name": "\ud800", "instances": [1]}, "is not one of"),
    ],
)
def test_half_a_surrogate_pair(body, reason, client):
    status, answer = client.predict("sums", body, "text/plain")
    assert (status, list(answer)) == (400, ["error"])
    assert reason in answer["error"]
    # KServe's own parser, which the content type selects, refuses the whole text.
    assert client.predict("sums", body)[0] == 400


def test_models_cannot_be_unloaded(client):
    for action in ("models/global/unload", "models/global/load", "index"):
        status, answer = client.post(f"/v2/repository/{action}", b"{}")
        assert status == 404
        assert "repository" in answer["error"]
    assert client.get("/global") == (200, {"name": "global", "ready": True})


def test_unknown_model(client):
    status, answer = client.predict("personal-99", {"instances": [_DIGIT]})
    assert (status, list(answer)) == (404, ["error"])
    assert "personal-99" in answer["error"]
    assert "There are: global, personal-0, personal-1," in answer["error"]


def test_200_concurrent_requests(client, own_answers, images):
    """All are sent at the same time, to two models; every tenth request is invalid."""
    expected = {
        "global": own_answers("global", "serving_default", images=images[:200]),
        "personal-2": own_answers("personal/2", "serving_default", images=images[:200]),
    }
    together = threading.Barrier(200)

    def ask(k):
        instances = images[k : k + 1].tolist() if k % 10 else [[k]]
        together.wait()
        return client.predict(("global", "personal-2")[k % 2], {"instances": instances})

    with concurrent.futures.ThreadPoolExecutor(200) as pool:
        answers = list(pool.map(ask, range(200)))
    for k, (status, answer) in enumerate(answers):
        if k % 10 == 0:
            assert status == 400
            assert "shape [1, 1]" in answer["error"]
            continue
        assert status == 200, answer
        mine = expected[("global", "personal-2")[k % 2]]
        assert_same(
            to_columns(answer["predictions"]), {name: v[k : k + 1] for name, v in mine.items()}
        )


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """A client of a server with low limits.

    Its model `slow` takes a second or two, and a sample of `wide` is answered with a megabyte.
    """
    directory = tmp_path_factory.mktemp("small")
    write_sums(directory / "sums", 1)
    module = tf.Module()

    @tf.function(input_signature=[tf.TensorSpec([None], tf.float32, name="numbers")])
    def slow(numbers):
        steps = tf.while_loop(lambda i: i < 500_000, lambda i: [i + 1], [tf.constant(0)])
        return {"total": numbers + tf.cast(steps[0], tf.float32)}

    @tf.function(input_signature=[tf.TensorSpec([None], tf.float32, name="numbers")])
    def wide(numbers):
        return {"many": tf.tile(numbers[:, tf.newaxis] / 3, [1, 50_000])}

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="image_bytes")])
    def of_files(image_bytes):
        return {"length": tf.strings.length(image_bytes)}

    tf.saved_model.save(module, str(directory / "wide" / "1"), {"serving_default": wide})
    tf.saved_model.save(module, str(directory / "slow" / "1"), {"serving_default": slow})
    tf.saved_model.save(module, str(directory / "files" / "1"), {"serving_default": of_files})
    limits = ("--max_request_mb=0.1", "--max_megapixels=1", "--timeout=1", "--workers=1")
    with processes.model_server(directory, *limits, "--queue=2") as (_, port):
        yield Client(port)


def test_large_requests_are_not_read(small):
    status, answer = small.predict_patiently("sums", b" " * 100_001)
    assert (status, answer) == (413, {"error": "the request has more than 0.1 MB"})
    status, _ = small.predict_patiently("sums", b'{"instances": [[4, 5]]}' + b" " * 90_000)
    assert status == 200
    # Without a length, in chunks of which the last never comes.
    with socket.create_connection(("127.0.0.1", small.port), timeout=10) as connection:
        connection.sendall(b"POST /v1/models/sums:predict HTTP/1.1\r\nHost: a\r\n")
        connection.sendall(b"Transfer-Encoding: chunked\r\n\r\n")
        for _ in range(11):
            connection.sendall(b"2710\r\n" + b" " * 10_000 + b"\r\n")
        assert b" 413 " in connection.makefile("rb").readline()


def test_slow_requests_are_not_waited_for(small):
    with socket.create_connection(("127.0.0.1", small.port), timeout=10) as connection:
        connection.sendall(
            b"POST /v1/models/sums:predict HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\n{"
        )
        assert b" 408 " in connection.makefile("rb").readline()


def test_images_that_are_large_after_decompression_are_not_decoded(small):
    def ask(*sizes):
        files = [tf.io.encode_png(np.zeros((*size, 1), np.uint8)).numpy() for size in sizes]
        encoded = [{"b64": base64.b64encode(file).decode()} for file in files]
        return small.predict_patiently("files", {"instances": encoded})

    status, answer = ask((1000, 1001))
    assert status == 400
    assert answer["error"] == "image_bytes[0]: the images have more than 1 megapixels together"
    status, answer = ask((1000, 600), (1000, 600))
    assert (status, answer["error"][:14]) == (400, "image_bytes[1]")
    assert ask((1000, 1000))[0] == 200


def test_requests_beyond_the_queue_are_refused_at_once(small):
    """One is computed and takes too long, two wait, the others are refused."""
    together = threading.Barrier(8)

    def ask(_):
        together.wait()
        return small.predict("slow", {"instances": [1]})

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(ask, range(8)))
    statuses = sorted(status for status, _ in answers)
    assert set(statuses) <= {200, 503, 504}
    assert statuses.count(503) >= 4
    reasons = {
        200: None,
        503: "too many requests are waiting; try again later",
        504: "no answer within 1 s",
    }
    assert all(answer.get("error") == reasons[status] for status, answer in answers)


def test_more_bodies_than_fit_into_memory_are_refused_at_once(small):
    """Six may arrive at the same time: twice the one that is computed and the two that wait."""
    with contextlib.ExitStack() as slow:
        for _ in range(6):
            connection = socket.create_connection(("127.0.0.1", small.port), timeout=10)
            slow.enter_context(connection).sendall(
                b"POST /v1/models/sums:predict HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\n{"
            )
        answers = [small.get() for _ in range(2)]
    busy = {"error": "too many requests are waiting; try again later"}
    assert (503, busy) in answers


def test_more_samples_than_a_request_may_have(client):
    status, answer = client.predict("sums", {"instances": [[1, 2]] * 10_001})
    reason = "images: has 10001 samples; a request may have 10000"
    assert (status, answer) == (400, {"error": reason})
    # More than are computed at a time.
    status, answer = client.predict("sums", {"inputs": [[n % 200, 1] for n in range(300)]})
    assert status == 200
    assert answer["outputs"]["total"] == [n % 200 + 1 for n in range(300)]


def test_the_client_on_which_the_least_time_was_spent_comes_next():
    """Neither many requests of one client nor expensive ones hold up those of others."""
    code = """
import asyncio, sys, time
sys.path.insert(0, {folder!r})
import limits

async def main():
    workers = limits.Workers(limits.Limits(1, 1, 1, 30.0, 1, 4))
    order, refused = [], []

    def compute(check, name):
        order.append(name)
        begin = time.process_time()
        while time.process_time() < begin + (0.1 if name == "a" else 0.001):
            pass

    async def ask(name):
        limits.client.set(name)
        try:
            await workers.answer(compute, name)
        except limits.Refusal as refusal:
            refused.append(name)

    def start(names):
        return [asyncio.create_task(ask(name)) for name in names]

    async def show():
        print("".join(order + refused))
        order.clear()
        refused.clear()

    await asyncio.gather(*start("aabbb"))
    await show()
    # The queue is full: the client with the most requests in it loses the last one, or is refused.
    await asyncio.gather(*start("aaaaabca"))
    await show()
    # A turn that nobody waits for any more is passed on.
    workers._running["a"] = 1
    waiting, = start("a")
    await asyncio.sleep(0)
    workers._finish("a", 0.0)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    await ask("b")
    await show()
    print(dict(workers._running), workers._waiting)

asyncio.run(main())
"""
    code = code.format(folder=str(processes.SERVING_ADAPTER.parent))
    command = [processes.SERVING_PYTHON, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.split() == ["abbba", "abcaaaaa", "b", "{}", "{}"], done.stderr


def is_closed(connection):
    """Whether the server has ended a connection, after whatever it has sent."""
    connection.settimeout(10)
    try:
        while connection.recv(1 << 16):
            pass
    except ConnectionResetError:
        pass
    except TimeoutError:
        return False
    return True


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b"POST /v1/models/sums:predict HTTP/1.1\r\nHost: a\r\nX: ",
        b"GET /v1/models HTTP/1.1\r\nHost: a\r\n\r\nGET /v1",
    ],
    ids=["nothing", "half of the headers", "half of a second request"],
)
def test_connections_that_send_nothing_more_are_ended(sent, small):
    with socket.create_connection(("127.0.0.1", small.port)) as connection:
        connection.sendall(sent)
        assert is_closed(connection)


@pytest.mark.parametrize("number", [20, 2000])
def test_requests_that_do_not_wait_for_answers_are_limited(number, small):
    request = b"GET /v1/models HTTP/1.1\r\nHost: a\r\n\r\n"
    with socket.create_connection(("127.0.0.1", small.port), timeout=10) as connection:
        connection.sendall(request * number)
        received = b""
        with contextlib.suppress(ConnectionResetError):
            while received.count(b"HTTP/1.1 200") < number and (part := connection.recv(1 << 16)):
                received += part
    # The one that is being answered, and 64 that wait.
    assert received.count(b"HTTP/1.1 200") == number if number == 20 else b" 400 " in received


@pytest.mark.parametrize("part", [b"X: ", b"GET /"], ids=["header", "url"])
def test_headers_without_end_are_not_stored(part, small):
    start = b"" if part == b"GET /" else b"GET / HTTP/1.1\r\nHost: a\r\n"
    with socket.create_connection(("127.0.0.1", small.port)) as connection:
        connection.settimeout(10)
        connection.sendall(start + part)
        with pytest.raises(OSError):
            for _ in range(10_000):
                connection.sendall(b"x" * 10_000)


def test_a_client_that_does_not_read_its_answer_is_not_waited_for(small):
    body = b'{"instances": [1]}'
    request = b"POST /v1/models/wide:predict HTTP/1.1\r\nHost: a\r\n"
    request += f"Content-Length: {len(body)}\r\n\r\n".encode() + body
    with socket.create_connection(("127.0.0.1", small.port)) as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        # The kernel keeps some megabytes for a slow reader.
        connection.sendall(request * 30)
        began = time.monotonic()
        with pytest.raises(OSError):
            while time.monotonic() - began < 60:
                time.sleep(0.1)
                connection.sendall(request)
    # Until what is being computed for it has ended.
    assert small.predict_patiently("sums", {"instances": [[4, 5]]})[0] == 200


def test_idle_connections_make_room_for_others(tmp_path):
    """300 of them at a limit of 256 descriptors; and they do not delay the end of the server."""
    write_sums(tmp_path / "sums", 1)
    # No connection ends by itself before the server does.
    command = ["sh", "-c", 'ulimit -n 256; exec "$@"', "sh", processes.SERVING_PYTHON]
    command += [processes.SERVING_ADAPTER, f"--export_dir={tmp_path}", "--port=0"]
    command += ["--timeout=10000"]
    with (
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process,
        contextlib.ExitStack() as idle,
    ):
        port = int(re.search(r":(\d+)/v1", process.stdout.readline())[1])
        for _ in range(300):
            connection = socket.create_connection(("127.0.0.1", port))
            idle.enter_context(connection).sendall(b"GET / HTTP/1.1\r\nX: ")
        for _ in range(10):
            assert Client(port).predict("sums", {"instances": [[4, 5]]})[0] == 200
        process.send_signal(signal.SIGINT)
        assert process.wait(300) == 0


def start(*flags):
    """Starts the server without waiting until it is ready."""
    command = [processes.SERVING_PYTHON, processes.SERVING_ADAPTER, *flags]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_server_listens_on_loopback_by_default(server):
    assert "http://127.0.0.1:" in server[0]


# Calls the server's program with each of several command lines: status, output and errors.
_CALLS = """
import contextlib, io, json, pathlib, sys
sys.path.insert(0, str(pathlib.Path(sys.argv[1]).parent))
import adapter
results = []
for flags in json.loads(sys.argv[2]):
    out, err = io.StringIO(), io.StringIO()
    sys.argv[1:] = flags
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            adapter.main()
            status = 0
        except SystemExit as end:
            status = end.code
    results.append([status, out.getvalue(), err.getvalue()])
print(json.dumps(results))
"""


# What can happen to the files of a model, as functions of the file.
DAMAGES = {
    "saved_model.pb": lambda path: path.write_bytes(path.read_bytes()[:100]),
    "variables/variables.index": lambda path: path.unlink(),
    "variables/variables.data-00000-of-00001": lambda path: path.write_bytes(b"short"),
    "variables": lambda path: replace_by_other_variables(path),
}


def replace_by_other_variables(path):
    """The variables of another model, as if a copy of it had been interrupted."""
    other = tf.Module()
    other.offset = tf.Variable(tf.zeros([3]))
    tf.saved_model.save(other, str(path.with_name("other")))
    shutil.rmtree(path)
    (path.with_name("other") / "variables").rename(path)
    shutil.rmtree(path.with_name("other"))


def damage(directory, file):
    """Writes a model with a damaged file in an export of its own; returns its directory."""
    module = tf.Module()
    module.factor = tf.Variable(tf.ones([100]))
    spec = tf.TensorSpec([None], tf.float32, name="numbers")
    signature = tf.function(lambda numbers: {"first": numbers * module.factor[0]}, [spec])
    path = directory / file.replace("/", "_") / "model" / "1"
    tf.saved_model.save(module, str(path), {"serving_default": signature})
    DAMAGES[file](path / file)
    return path


def test_start_errors_are_one_line(export_dir, tmp_path):
    """The first in a process of its own, the others in one, which imports libraries once."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        model_dir = export_dir / "global"
        damaged = {part: damage(tmp_path / "damaged", part) for part in DAMAGES}
        (empty := tmp_path / "empty").mkdir()
        refused = {
            (f"--export_dir={model_dir}",): f"--export_dir={model_dir}: holds no",
            (f"--export_dir={empty}",): f"--export_dir={empty}: holds no SavedModel",
            (f"--export_dir={tmp_path / 'no'}",): f"{tmp_path / 'no'}: holds no SavedModel",
            (f"--export_dir={export_dir}", f"--port={port}"): f"--port={port}: ",
            (f"--export_dir={export_dir}", "--timeout=0"): "argument --timeout: invalid positive",
            (f"--export_dir={export_dir}", "--queue=-1"): "argument --queue: invalid positive",
            (f"--export_dir={export_dir}", "--max_request_mb=1e308"): "number of at most a billion",
            **{
                (f"--export_dir={path.parents[1]}", "--port=0"): f"{path} cannot be loaded: "
                for path in damaged.values()
            },
        }
        first, *others = refused
        with start(*first) as process:
            out, err = process.communicate()
        command = [processes.SERVING_PYTHON, "-c", _CALLS, processes.SERVING_ADAPTER]
        printed = subprocess.run(
            [*command, json.dumps(others)], capture_output=True, text=True, check=True
        ).stdout
    found = [(process.returncode, out, err), *json.loads(printed)]
    for (status, out, err), message in zip(found, refused.values(), strict=True):
        assert (status, out) == (2, "")
        assert err.startswith("serve: error: ")
        assert message in err
        assert err.count("\n") == 1, err


@pytest.mark.parametrize("later", [0, 1], ids="{}_s_later".format)
def test_an_interrupt_ends_the_server_without_output(tmp_path, later):
    """Also one that comes before the server has replaced the handlers of signals."""
    write_sums(tmp_path / "sums", 1)
    with start(f"--export_dir={tmp_path}", "--port=0") as process:
        assert process.stdout.readline().endswith(": sums\n")
        time.sleep(later)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate()
    assert (process.returncode, out, err) == (0, "", "")


def test_make_serve_passes_on_its_settings():
    command = ["make", "--dry-run", "serve", "EXPORT_DIR=out", "PORT=1234"]
    root = processes.SERVING_ADAPTER.parents[1]
    printed = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True)
    assert "--export_dir=out --host=127.0.0.1 --port=1234" in printed.stdout
