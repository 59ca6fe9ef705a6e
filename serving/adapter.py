"""Serves exported models with KServe's Python server and TensorFlow Serving's REST protocol.

    .venv-serving/bin/python serving/adapter.py --export_dir=exported --port=8501

KServe provides the HTTP server and its V1 protocol, which is that of TensorFlow Serving: `POST
/v1/models/NAME:predict`, with errors as `{"error": …}`. This file finds the exported models and
converts requests to inputs of their signatures. It runs in a separate environment,
serving/requirements.lock, and does not import this project.
"""

from __future__ import annotations

import argparse
import base64
import contextlib
import json
import logging
import math
import os
import socket
import sys
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
# Kernels of oneDNN keep state between calls, which is not safe for concurrent requests.
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")

import columns
import connections
import images
import kserve
import numpy as np
import tensorflow as tf
from kserve.errors import InvalidInput, ModelNotFound
from kserve.protocol.dataplane import DataPlane
from kserve.protocol.model_repository_extension import ModelRepositoryExtension
from kserve.protocol.rest.server import RESTServer
from limits import Guard, Limits, Refusal, Workers
from starlette.responses import JSONResponse


class UnusableModelError(Exception):
    """Files of an exported model are missing or damaged, or cannot be read."""


# What requests may still take when the server ends.
_GRACE_SECONDS = 3

# The most bytes of a message of protobuf's, and of a sites.json.
_MOST_GRAPH = 2**31
_MOST_SITES = 64_000_000

# Samples that are computed at a time; between them, it is checked whether the answer is too late.
_CHUNK = 64

# The characters of base64 for URLs, and the usual ones.
_URL_SAFE = str.maketrans("-_", "+/")

# What TensorFlow raises for such files; AssertionError if the variables are those of another model.
_UNUSABLE = (OSError, LookupError, ValueError, AssertionError, tf.errors.OpError)


# The signatures of a table's model: with one input, and with one for each column.
_BY_NAME = "serving_columns"
_OF_TABLES = ("serving_default", _BY_NAME)


class SavedModel(kserve.Model):
    """A SavedModel whose signatures have a single, batched input, or the columns of a table.

    Args:
        name: name of the model in the URL.
        path: directory of the SavedModel.
        limits: what a request may cost.
        workers: the threads that compute answers.
    """

    def __init__(self, name: str, path: Path, limits: Limits, workers: Workers):
        super().__init__(name)
        self._path = path
        self._limits = limits
        self._workers = workers
        self.load()

    def load(self) -> bool:
        """Loads the model; KServe also calls this to load a model again after unloading it.

        Raises:
            UnusableModelError: files of the model are missing or damaged, or cannot be read.
        """
        try:
            for file in self._path.rglob("*"):
                if not (file.is_file() or file.is_dir()):
                    raise OSError(f"{file.name} is not a regular file")
            if (self._path / "saved_model.pb").stat().st_size > _MOST_GRAPH:
                raise OSError("saved_model.pb is too large for a model")
            # Signatures do not keep their variables alive, but the model does.
            self._model = tf.saved_model.load(str(self._path))
            described = self._path / columns.FILE
            is_table = described.is_file() or _BY_NAME in self._model.signatures
            self._columns = columns.Columns(described) if is_table else None
        except _UNUSABLE as error:
            reason = str(error).strip().partition("\n")[0].rstrip(".")
            raise UnusableModelError(f"{self._path} cannot be loaded: {reason}") from None
        self.ready = True
        return self.ready

    async def predict(self, payload: Any, headers=None, response_headers=None) -> dict[str, Any]:
        """Answers a predict request in a thread, so that the server can receive other requests.

        Raises:
            InvalidInput: the request does not fit the model. KServe answers with status 400 and the
                reason.
            Refusal: there are too many requests, or the answer takes too long.
        """
        return await self._workers.answer(self._answer, payload)

    def _answer(self, check: Callable[[], None], payload: Any) -> dict[str, Any]:
        # KServe parses the body only if its content type is JSON, which `curl -d` does not set.
        request = parse_json(payload) if isinstance(payload, bytes) else payload
        if not isinstance(request, dict):
            raise InvalidInput("the request is not a JSON object with instances or inputs")
        signature_name = request.get("signature_name", "serving_default")
        if signature_name not in list(self._model.signatures):
            known = ", ".join(sorted(self._model.signatures))
            raise InvalidInput(f"signature_name {signature_name!r} is not one of {known}")
        table = self._columns if signature_name in _OF_TABLES else None
        # Values by name become a row, for which the signature with one input is enough.
        signature = self._model.signatures["serving_default" if table else signature_name]
        ((name, spec),) = signature.structured_input_signature[1].items()
        try:
            batch = self._batch(request, name, spec, table)
        except columns.WrongRow as error:
            raise InvalidInput(str(error)) from None
        if name == "image_bytes":
            self._limits.check_images(batch.numpy())
        outputs: dict[str, list] = {key: [] for key in signature.structured_outputs}
        try:
            # A whole request of small images may need a thousand times its own memory.
            for start in range(0, len(batch), _CHUNK):
                check()
                part = batch[start : start + _CHUNK]
                if name == "image_bytes":
                    part = self._readable(part.numpy(), start)
                answers = signature(**{name: part})
                for key, value in answers.items():
                    outputs[key] += to_json(value)
                    if value.dtype.is_floating and not np.isfinite(value).all():
                        raise InvalidInput(f"{name}: the answer to one of the values is not finite")
        except tf.errors.InvalidArgumentError as error:
            # The message consists of a trace, the reason, and the node; keep only the reason.
            reason = error.message.partition("\n\t [[")[0].rpartition("\n")[2]
            raise InvalidInput(f"{name}: {reason}") from None
        if "inputs" in request:
            return {"outputs": outputs}
        rows = zip(*outputs.values(), strict=True)
        return {"predictions": [dict(zip(outputs, row, strict=True)) for row in rows]}

    def _batch(
        self,
        request: Mapping[str, Any],
        name: str,
        spec: tf.TensorSpec,
        table: columns.Columns | None,
    ) -> tf.Tensor:
        """The input of a signature for the samples of a request."""
        samples = table.rows(request, name) if table else read_batch(request, name)
        if len(samples) > self._limits.samples:
            raise InvalidInput(
                f"{name}: has {len(samples)} samples; a request may have {self._limits.samples}"
            )
        if table:
            most = columns.largest(spec.dtype.as_numpy_dtype)
            return tf.constant(table.batch(samples, most), spec.dtype)
        return to_tensor(samples, name, spec) if samples else tf.zeros([0], spec.dtype)

    def _readable(self, files: Sequence[bytes], first: int) -> tf.Tensor:
        """Image files that the model reads; `first` is the position of the first in the request."""
        stored = self._model.signatures["serving_default"].structured_input_signature[1]
        channels = next(iter(stored.values())).shape[-1]
        read = []
        for number, file in enumerate(files, first):
            try:
                read.append(images.as_read_by_models(file, channels))
            except ValueError as error:
                raise InvalidInput(f"image_bytes[{number}]: {error}") from None
        return tf.constant(read, tf.string)


def parse_json(body: bytes) -> Any:
    """The body of a request."""
    try:
        return json.loads(body)
    except ValueError as error:
        raise InvalidInput(f"the request is not JSON: {error}") from None
    except RecursionError:
        raise InvalidInput("the request is nested too deeply") from None


def read_batch(request: Mapping[str, Any], name: str) -> list:
    """The values of a request, one per sample, by rows (`instances`) or by columns (`inputs`)."""
    key = columns.format_of(request)
    batch = request[key] if key == "instances" else unwrap(request[key], name, key)
    if not isinstance(batch, list):
        raise InvalidInput(f"{key}: must be a list of {name}")
    if key == "instances":
        batch = [unwrap(value, name, f"instances[{i}]") for i, value in enumerate(batch)]
    return batch


def unwrap(value: Any, name: str, place: str) -> Any:
    """The value of an input, which is given either directly or as an object `{name: value}`."""
    if not isinstance(value, dict) or set(value) == {"b64"}:
        return value
    if set(value) != {name}:
        found = _printable(", ".join(sorted(value))) or "nothing"
        raise InvalidInput(f"{place}: has {found} instead of {name}")
    return value[name]


def to_tensor(batch: list, name: str, spec: tf.TensorSpec) -> tf.Tensor:
    """The input of a signature for JSON values, one per sample."""
    if spec.dtype == tf.string:
        return tf.constant([to_bytes(value, name) for value in batch], tf.string)
    # As objects, which are there already: as texts, all values would be as long as the longest one.
    array = np.array(batch, dtype=object)
    kinds = set(map(type, array.flat))
    if list in kinds:
        raise InvalidInput(f"{name}: has lists of different lengths")
    if not spec.shape.is_compatible_with(array.shape):
        expected = ", ".join(map(str, ["batch", *spec.shape[1:]]))
        raise InvalidInput(f"{name}: has shape {list(array.shape)}, not [{expected}]")
    if kinds <= {int, float}:
        array = np.array(batch)
    if spec.dtype.is_integer:
        limits = spec.dtype.min, spec.dtype.max
        wanted = f"whole numbers from {limits[0]} to {limits[1]}"
        fits = array.dtype.kind in "iu" and limits[0] <= array.min() and array.max() <= limits[1]
    else:
        if array.dtype == object and kinds <= {int, float}:
            # Whole numbers of more than 64 bits; as float64, if they are not too large for that.
            with contextlib.suppress(OverflowError):
                array = array.astype(np.float64)
        wanted = f"numbers of at most {spec.dtype.max:.2g}"
        most = columns.largest(spec.dtype.as_numpy_dtype)
        fits = array.dtype.kind in "iuf" and bool((np.abs(array) <= most).all())
    if not fits:
        raise InvalidInput(f"{name}: not all values are {wanted}")
    return tf.constant(array, spec.dtype)


def to_bytes(value: Any, name: str) -> bytes:
    """The bytes of a JSON value: a string or `{"b64": …}`, also url-safe or in lines."""
    try:
        if isinstance(value, str):
            return value.encode()
        (encoded,) = [value["b64"]]
    # Among them UnicodeEncodeError, for half of a surrogate pair.
    except (AttributeError, KeyError, TypeError, ValueError):
        raise InvalidInput(f'{name}: not all values are strings or {{"b64": …}}') from None
    try:
        # Encoders wrap lines, and those for URLs use other characters and no padding.
        digits = "".join(encoded.split()).translate(_URL_SAFE).rstrip("=")
        return base64.b64decode(digits + "=" * (-len(digits) % 4), validate=True)
    except (AttributeError, TypeError, ValueError):
        raise InvalidInput(f"{name}: a value of b64 is not base64") from None


def _printable(text: str) -> str:
    """Text that can be part of an answer or a line: half a surrogate pair has no encoding in UTF-8,
    and terminals obey control characters.
    """
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def to_json(tensor: tf.Tensor) -> list:
    """The values of an output; strings are class names."""
    values = tensor.numpy()
    return [name.decode() for name in values] if tensor.dtype == tf.string else values.tolist()


class Server(RESTServer):
    """KServe's HTTP server, with limits.

    kserve.ModelServer would listen on all network interfaces, which cannot be changed.
    """

    def __init__(
        self, models: kserve.ModelRepository, port: int, limits: Limits, known: Sequence[str]
    ):
        repository = ModelRepositoryExtension(models)
        super().__init__(
            "kserve.model_server:app",
            DataPlane(models),
            repository,
            port,
            grace_period=_GRACE_SECONDS,
            timeout_keep_alive=math.ceil(limits.seconds),
        )
        self.config.http = connections.protocol(limits)
        self._limits = limits
        self._known = known

    def _add_middlewares(self, app):
        super()._add_middlewares(app)
        app.add_middleware(Guard, limits=self._limits)

    def _add_exception_handlers(self, app):
        super()._add_exception_handlers(app)
        app.add_exception_handler(Refusal, _refuse)
        app.add_exception_handler(ModelNotFound, self._unknown)

    async def _unknown(self, request: Any, error: ModelNotFound) -> JSONResponse:
        reason = f"{error.reason} There are: {', '.join(self._known)}"
        return JSONResponse({"error": reason}, 404)


async def _refuse(request: Any, refusal: Refusal) -> JSONResponse:
    return JSONResponse({"error": refusal.reason}, refusal.status)


def find_models(export_dir: Path) -> dict[str, Path]:
    """The newest version of every model, by its name in models.config."""
    # Versions have numeric names; folders with other names are unfinished exports.
    files = export_dir.glob("**/*/*/saved_model.pb")
    found = [file.parent for file in files if file.parent.name.isdecimal()]
    newest: dict[str, Path] = {}
    for path in sorted(found, key=lambda path: int(path.name)):
        newest[path.parent.relative_to(export_dir).as_posix().replace("/", "-")] = path
    return dict(sorted(newest.items()))


def describe(names: Iterable[str], export_dir: Path) -> list[str]:
    """The names of the models, with the clients of those in sites.json, whose ids are others."""
    try:
        path = export_dir / "sites.json"
        # A pipe would be waited for, and a file without data may have any size.
        usable = path.is_file() and path.stat().st_size <= _MOST_SITES
        sites = json.loads(path.read_text(encoding="utf-8")) if usable else {}
    except (OSError, ValueError, RecursionError):
        sites = {}
    clients = {name: sites.get(name) if isinstance(sites, dict) else None for name in names}
    return [
        f"{_printable(name)} ({_printable(client)})"
        if isinstance(client, str)
        else _printable(name)
        for name, client in clients.items()
    ]


class Parser(argparse.ArgumentParser):
    """Explains errors in one line, without the usage."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"serve: error: {message}\n")


def main() -> None:
    """Reads the command line, and serves until interrupted."""
    parser = Parser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--export_dir", type=Path, required=True, help="Output directory of tasks.export."
    )
    parser.add_argument(
        "--host", default="127.0.0.1", help="Address to listen on; 0.0.0.0 admits other machines."
    )
    parser.add_argument("--port", type=int, default=8501, help="Port; 0 means any free port.")
    Limits.add_arguments(parser)
    flags = parser.parse_args()

    paths = find_models(flags.export_dir)
    if not paths:
        parser.error(f"--export_dir={flags.export_dir}: holds no SavedModel")
    try:
        listening = socket.create_server((flags.host, flags.port))
    except (OSError, OverflowError) as error:
        parser.error(f"--host={flags.host} --port={flags.port}: {error}")

    with contextlib.suppress(KeyboardInterrupt):
        try:
            serve(paths, listening, flags.export_dir, Limits.parsed(flags))
        except UnusableModelError as error:
            parser.error(
                f"--export_dir={flags.export_dir}: {error}; check its files, or export it again"
            )
    # The interpreter would wait for answers that are being computed and that nobody receives.
    sys.stdout.flush()
    os._exit(0)


def serve(
    paths: Mapping[str, Path], listening: socket.socket, export_dir: Path, limits: Limits
) -> None:
    """Loads the models, prints a line when they are ready, and answers requests."""
    # KServe logs a traceback for every rejected request. Uvicorn logs those of real errors.
    logging.getLogger("kserve").setLevel(logging.CRITICAL)
    warnings.filterwarnings("ignore", message="ORJSONResponse is deprecated")

    workers = Workers(limits)
    models = kserve.ModelRepository()
    for name, path in paths.items():
        models.update(SavedModel(name, path, limits, workers))
    known = describe(paths, export_dir)
    host, port = listening.getsockname()[:2]
    server = Server(models, port, limits, known)
    print(f"serving at http://{host}:{port}/v1/models: {', '.join(known)}", flush=True)
    server.run([listening])


if __name__ == "__main__":
    main()
