"""Requests to exported models that they were not made for, in every format.

Whatever the shape, type, value or name of an input, a model gives the answer of the network in
memory for what NumPy makes of the request, or refuses it. The models are called in a process of
their own, because a wrong shape could end it:

    python -m tests.faults.fuzzed_exports DIR    exports models; answers requests from its input
"""

from __future__ import annotations

import atexit
import base64
import contextlib
import dataclasses
import functools
import http.client
import io
import itertools
import json
import random
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import processes
from tests.faults.case import REFUSED, SAME, Case, SilentDifference, one_line

CASES = 160
_CLASSES = ("cat", "dog", "owl")
_ALPHABET = "\n ab"

# The formats, and how they are called in the table.
FORMATS = {
    "saved_model": "a SavedModel",
    "session": "a SavedModel in a session of TensorFlow",
    "keras": "a Keras file",
    "lite": "a TensorFlow Lite file",
    "int8": "an int8 TensorFlow Lite file",
}
_SERVER = "the server"
MODELS = ("image", "vector", "table", "text")


def cases(directory: Path) -> Iterator[Case]:
    models = functools.cache(functools.partial(_Models, directory))
    for name, shown in FORMATS.items():
        for number in range(CASES):
            yield Case(
                f"request to {shown}",
                f"{MODELS[number % 4]} {number}",
                functools.partial(
                    lambda name, number, _: models().check(name, number), name, number
                ),
            )
    if processes.SERVING_PYTHON.exists():
        server = functools.cache(lambda: _Server(models()))
        for number in range(CASES):
            yield Case(
                f"request to {_SERVER}",
                f"{MODELS[number % 4]} {number}",
                functools.partial(lambda number, _: server().check(number), number),
            )


# Requests.

_SHAPES = {"image": (8, 6, 3), "vector": (4,), "table": (4,), "text": (5,)}
_NAMES = {"image": "images", "vector": "features", "table": "features", "text": "ids"}
_COLUMNS = ("age", "dose, mg", "pain", "ward")
_INPUTS = ("age", "dose_mg", "pain", "ward")
_PAINS, _WARDS = ("dull", "none at all", "stechend"), (1, 2, 4)
_TYPES = ("uint8", "int8", "int32", "int64", "float16", "float32", "float64", "bool", "complex64")
_NUMBERS = (np.nan, np.inf, -np.inf, 3e38, -1e39, 1e-45, 256, 255, 0.5, -1, -252, 258, 2**32 + 2)
_TEXTS = ("", "b", "ab\nab", "abzbba", "ä" * 9, "a" * 5000, "\0ab", b"\xffab")


def _valid(model: str, draw: random.Random, size: int, *, by_name: bool = False) -> np.ndarray:
    """A batch that a model was made for; in a table, categories are codes, or texts by name."""
    generator = np.random.default_rng(draw.randrange(2**32))
    if model == "image":
        return generator.integers(0, 256, (size, *_SHAPES[model]), np.uint8)
    if model == "text":
        return generator.integers(0, len(_ALPHABET) + 1, (size, *_SHAPES[model]), np.uint8)
    if model == "vector":
        return generator.normal(50, 20, (size, 4)).astype(np.float32)
    rows = np.empty((size, 4), object if by_name else np.float32)
    rows[:, 0] = generator.integers(20, 90, size)
    rows[:, 1] = np.float32(generator.normal(5, 2, size))
    rows[:, 2] = [_PAINS[i] if by_name else i for i in generator.integers(0, 3, size)]
    rows[:, 3] = generator.choice(_WARDS, size)
    return rows


def _other_shape(batch: np.ndarray, draw: random.Random) -> np.ndarray:
    """The values of a batch in another shape."""
    axis = draw.randrange(batch.ndim)
    return draw.choice(
        [
            lambda: batch[0] if len(batch) else batch,
            lambda: batch[..., 0] if batch.size else batch,
            lambda: batch[..., None],
            lambda: batch[None],
            lambda: batch.take([0], axis) if batch.size else batch,
            lambda: np.concatenate([batch, batch.take([0], axis)], axis) if batch.size else batch,
            lambda: batch.swapaxes(axis, -1),
            lambda: batch.ravel(),
            lambda: batch.take([], axis),
            lambda: batch.ravel()[0] if batch.size else batch,
            lambda: np.repeat(batch, 2, axis),
        ]
    )()


def _other_values(batch: np.ndarray, draw: random.Random) -> np.ndarray:
    batch = batch.astype(draw.choice([np.float64, np.float32]))
    for _ in range(draw.randint(1, 3) if batch.size else 0):
        batch.ravel()[draw.randrange(batch.size)] = draw.choice(_NUMBERS)
    return batch


def _request(model: str, draw: random.Random) -> tuple[dict[str, Any], bool]:
    """Inputs by their names, of which most are damaged; and whether they are as they should be."""
    batch: Any = _valid(model, draw, draw.choice([0, 1, 1, 2, 5]))
    name, change = _NAMES[model], draw.randrange(7)
    if change == 1:
        batch = _other_shape(batch, draw)
    elif change == 2:
        batch = _other_values(batch, draw)
    elif change == 3:
        with np.errstate(all="ignore"):
            batch = batch.astype(draw.choice(_TYPES))
    elif change == 4:
        other = draw.choice(["input", "x", name.upper(), ""])
        return draw.choice([{other: batch}, {name: batch, other: batch}, {}]), False
    elif change == 5:
        batch = draw.choice([None, "cat", [[1, 2], [3]], [["a"]], {"b64": "AAAA"}, batch.tolist()])
    elif change == 6:
        batch = batch.astype(str)
    return {name: batch}, not change


def _texts(draw: random.Random) -> tuple[dict[str, Any], bool]:
    """As `_request`, of texts."""
    texts: Any = np.array([draw.choice(_TEXTS) for _ in range(draw.choice([0, 1, 3]))], object)
    change = draw.randrange(5)
    if change == 1:
        texts = _other_shape(texts, draw)
    elif change == 2:
        texts = draw.choice([None, 7, [1.5], [["a"], "b"], np.zeros([2, 5], np.uint8)])
    elif change == 3:
        return draw.choice([{"ids": texts}, {"texts": texts, "images": texts}, {}]), False
    return {"texts": texts}, not change


def _columns(draw: random.Random, names: tuple[str, ...]) -> tuple[dict[str, Any], bool]:
    """As `_request`, of a table's columns."""
    rows = _valid("table", draw, draw.choice([0, 1, 2, 5]), by_name=True)
    given: dict[str, Any] = {
        name: values.astype(object if name == "pain" else np.float32)
        for name, values in zip(names, rows.T, strict=True)
    }
    name, change = draw.choice(names), draw.randrange(7)
    values = given[name]
    if change == 1:
        given[name] = _other_shape(values, draw)
    elif change == 2 and values.size:
        values[draw.randrange(len(values))] = (
            draw.choice(["", "Dull", "NA", " dull "]) if name == "pain" else draw.choice(_NUMBERS)
        )
    elif change == 3:
        del given[name]
    elif change == 4:
        given["weight"] = values
    elif change == 5:
        given[name] = draw.choice([None, values.tolist(), values.astype(str), values[:1]])
    return given, not change


def _files(draw: random.Random) -> tuple[dict[str, Any], np.ndarray | None, bool]:
    """Image files, what they mean, and whether all of them can be read."""
    pixels = _valid("image", draw, draw.choice([0, 1, 2, 3]))
    files = np.array([_file(image, draw.choice(["PNG", "BMP"])) for image in pixels], object)
    change = draw.randrange(3)
    if change == 1:
        other: Any = _other_shape(files, draw)
        if np.ndim(other) != 1:
            return {"image_bytes": other}, None, False
        places = [[file is known for known in files].index(True) for file in other]
        return {"image_bytes": other}, pixels[places].astype(np.float64), True
    if change == 2 and len(files):
        files[draw.randrange(len(files))] = draw.choice(
            [
                b"",
                b"<html>",
                bytes(128) + b"DICM",
                files[0][: len(files[0]) // 2],
                *(_file(pixels[0], format) for format in ("GIF", "TIFF", "WEBP")),
            ]
        )
        return {"image_bytes": files}, None, False
    return {"image_bytes": files}, pixels.astype(np.float64), True


def _file(pixels: np.ndarray, format: str) -> bytes:
    from PIL import Image

    content = io.BytesIO()
    Image.fromarray(pixels).save(content, format)
    return content.getvalue()


# What a request means.


def _as_array(value: Any) -> np.ndarray | None:
    """A value as an array of numbers; None if it is none."""
    try:
        array = np.asarray(value)
    except ValueError:
        return None
    if array.dtype.kind == "c" and not array.imag.any():
        array = array.real
    return array if array.dtype.kind in "buif" else None


def _batch_of(model: str, value: Any) -> np.ndarray | None:
    """A batch of a model, float64 [n, …]; None if a value is none of it.

    An axis of size 1 behind all others changes no number.
    """
    array = _as_array(value)
    if array is None:
        return None
    if array.ndim == len(_SHAPES[model]) + 2 and array.shape[-1] == 1:
        array = array[..., 0]
    if array.ndim != len(_SHAPES[model]) + 1 or array.shape[1:] != _SHAPES[model]:
        return None
    return _checked(model, array.astype(np.float64))


def _checked(model: str, batch: np.ndarray) -> np.ndarray | None:
    """The batch, if a model must not refuse its values."""
    with np.errstate(over="ignore"):
        rounded = batch.astype(np.float32)
    if model in ("image", "text"):
        most = 255 if model == "image" else len(_ALPHABET)
        good = (rounded == np.floor(rounded)) & (rounded >= 0) & (rounded <= most)
    elif model == "vector":
        good = np.isfinite(rounded)
    else:
        good = np.isfinite(rounded) | np.isnan(rounded)
        for column, known in ((2, range(3)), (3, _WARDS)):
            good[:, column] &= np.isin(rounded[:, column], [*known, np.nan]) | np.isnan(
                rounded[:, column]
            )
    return rounded.astype(np.float64) if good.all() else None


def _ids(texts: Any) -> np.ndarray | None:
    """The ids of texts; None if these are none."""
    array = np.asarray(texts, object) if not isinstance(texts, list) else np.array(texts, object)
    if array.ndim != 1 or not all(isinstance(text, str | bytes) for text in array):
        return None
    found = np.full((len(array), 5), len(_ALPHABET))
    for row, text in enumerate(array):
        text = text.decode("utf-8", "replace") if isinstance(text, bytes) else text
        for place, character in enumerate((" " * 5 + text)[-5:]):
            if character in _ALPHABET:
                found[row, place] = _ALPHABET.index(character)
    return found


def _rows(given: dict[str, Any], names: tuple[str, ...]) -> np.ndarray | None:
    """The rows of a table's columns; None if they are none."""
    if set(given) != set(names):
        return None
    columns = []
    for name in names:
        try:
            values = np.asarray(given[name], object if name == "pain" else None)
        except ValueError:
            return None
        if values.ndim == 2 and values.shape[1] == 1 and names is _COLUMNS:
            # Keras leaves out an axis of size 1 behind all others, which changes no number.
            values = values[:, 0]
        if values.ndim != 1:
            return None
        if name == "pain":
            codes = {pain: code for code, pain in enumerate(_PAINS)} | {"": np.nan, "NA": np.nan}
            values = np.array([codes.get(str(text).strip(), -1) for text in values], np.float64)
        elif values.dtype.kind not in "buif":
            return None
        columns.append(values.astype(np.float64))
    if len({len(column) for column in columns}) > 1:
        return None
    return _checked("table", np.stack(columns, axis=1))


# The models.


@dataclasses.dataclass(frozen=True)
class Exported:
    """A model in all formats.

    Attributes:
        reference: probabilities for a batch of its samples, float64 [n, …], by the network in
            memory and what NumPy makes of the samples.
        signatures: those of the SavedModel.
        session: answers by a session; takes the name and the value of an input.
        keras: the model of the Keras file.
        lite, int8: the files of TensorFlow Lite.
    """

    reference: Callable[[np.ndarray], np.ndarray]
    signatures: Any
    session: Callable[[str, Any], dict[str, Any]]
    keras: Any
    lite: Path
    int8: Path


def _table():
    import pandas as pd

    draw = random.Random(0)
    rows = _valid("table", draw, 60, by_name=True)
    rows[::9, 1] = None
    rows[::11, 2] = ""
    made = pd.DataFrame(rows, columns=_COLUMNS)
    labels = [_CLASSES[i % 3] for i in range(60)]
    return made.assign(label=labels, site=["a", "b"] * 30)


def _federation(model: str):
    from tff_pcdd import data

    if model == "table":
        return data.from_dataframe(
            _table(),
            features=list(_COLUMNS),
            categorical_columns="pain,ward",
            impute="median",
        )
    x = _valid(model, random.Random(1), 60)
    labels = [_CLASSES[i % 3] for i in range(60)]
    if model != "text":
        return data.from_arrays(x, labels, ["a", "b"] * 30)
    spec = data.InputSpec("text", (5,), "uint8", vocabulary=_ALPHABET)
    examples = data.Examples(x, np.arange(60, dtype=np.int32) % 3)
    clients = [data.ClientIndices(name, np.arange(60), np.arange(60)) for name in "ab"]
    return data.Federation("texts", 3, _CLASSES, spec, examples, examples, clients)


def _encoded(model: str, federation: Any) -> Callable[[np.ndarray], np.ndarray]:
    """What NumPy makes of the samples: the inputs of the network, float32."""
    train = federation.train
    if model == "text":
        return lambda batch: batch.astype(np.int32)
    if model == "table":
        numbers = [int(name.removeprefix("row ")) for name in train.ids]
        doses = _table()["dose, mg"].iloc[numbers].astype(float)
        ages = _table()["age"].iloc[numbers].astype(float)

        def vectors(batch):
            age, dose, pain, ward = batch.T
            dose_is_missing = np.isnan(dose)
            age = np.where(np.isnan(age), ages.median(), age)
            dose = np.where(dose_is_missing, doses.median(), dose)
            pains = [pain == code for code in range(3)]
            wards = [ward == number for number in _WARDS]
            return np.stack(
                [age, dose, dose_is_missing, *pains, ~np.any(pains, axis=0), *wards], axis=1
            ).astype(np.float32)

    else:
        scale = 255 if model == "image" else 1

        def vectors(batch):
            return (batch / scale).astype(np.float32)

    axes = (0, 1, 2) if model == "image" else (0,)
    stored = train.x / 255 if model == "image" else train.x.astype(np.float64)
    mean, std = stored.mean(axis=axes), stored.std(axis=axes)
    std = np.where(std == 0, 1, std)
    return lambda batch: ((vectors(batch) - mean) / std).astype(np.float32)


def _backbone(shape: tuple[int, ...]):
    import tensorflow as tf

    if len(shape) == 1 and shape == _SHAPES["text"]:
        given = tf.keras.Input(shape, dtype="int32")
        embedded = tf.keras.layers.Embedding(len(_ALPHABET) + 1, 3)(given)
        return tf.keras.Model(given, tf.keras.layers.Dense(5)(tf.keras.layers.Flatten()(embedded)))
    given = tf.keras.Input(shape)
    flat = tf.keras.layers.Flatten()(given)
    return tf.keras.Model(given, tf.keras.layers.Dense(5, activation="tanh")(flat))


def export(model: str, directory: Path) -> Exported:
    """Exports an untrained model, and loads it in all formats."""
    import tensorflow as tf

    from tests import support
    from tff_pcdd.export import columns, keras_file, lite, saved_model

    federation = _federation(model)
    trained = support.untrained(federation, _backbone)
    folder = directory / model / "1"
    saved_model.write(trained, folder)
    if model == "table":
        columns.write(federation.input_spec, folder)
    files = directory.parent / f"{directory.name}_files" / model
    files.mkdir(parents=True)
    keras_file.write(trained, files)
    lite.write(trained, files, federation.train.x)
    encoded = _encoded(model, federation)

    def reference(batch):
        logits = trained.logits(tf.constant(encoded(batch))).numpy().astype(np.float64)
        weights = np.exp(logits - logits.max(axis=1, keepdims=True, initial=-np.inf))
        return weights / weights.sum(axis=1, keepdims=True)

    loaded = tf.saved_model.load(str(folder))
    return Exported(
        reference,
        # Signatures do not keep the variables of their model alive.
        {"model": loaded, **loaded.signatures},
        _session(folder),
        tf.keras.models.load_model(files / keras_file.FILE),
        files / lite.FLOAT,
        files / lite.INT8,
    )


def _session(folder: Path) -> Callable[[str, Any], dict[str, Any]]:
    """The signature `serving_default` in a session, as TensorFlow Serving has it."""
    import tensorflow as tf
    from tensorflow.core.protobuf import config_pb2

    graph = tf.Graph()
    session = tf.compat.v1.Session(graph=graph)
    with graph.as_default():
        meta = tf.compat.v1.saved_model.loader.load(session, ["serve"], str(folder))
    signature = meta.signature_def["serving_default"]
    # As a program in C++ calls it: `Session.run` would check and convert what it is given.
    calls = {
        name: session._make_callable_from_options(
            config_pb2.CallableOptions(
                feed=[info.name], fetch=[signature.outputs["probabilities"].name]
            )
        )
        for name, info in signature.inputs.items()
    }
    return lambda name, value: {"probabilities": calls[name](np.asarray(value))[0]}


# Checks in the process of the models.


def outcome(name: str, number: int, models: dict[str, Exported]) -> str:
    """Sends a request to a model in a format, and returns the outcome."""
    model = MODELS[number % 4]
    exported, draw = models[model], random.Random(f"{name} {number}")
    names = [_NAMES[model]]
    if name in ("saved_model", "session") and model == "text":
        given, is_valid = _texts(draw)
        expected = _ids(given["texts"]) if set(given) == {"texts"} else None
        return _compare(exported, expected, lambda: answer_of(name, exported, given), is_valid)
    if name == "saved_model" and model == "image" and number % 8 >= 4:
        given, expected, is_valid = _files(draw)
        function = exported.signatures["serving_bytes"]
        return _compare(exported, expected, lambda: function(**tensors(given)), is_valid)
    if model == "table" and (name == "keras" or (name == "saved_model" and number % 8 >= 4)):
        by = _COLUMNS if name == "keras" else _INPUTS
        given, is_valid = _columns(draw, by)
        if name == "keras":
            expected = _rows({key: given[key] for key in by if key in given}, by)
            return _compare(exported, expected, lambda: exported.keras(tensors(given)), is_valid)
        function = exported.signatures["serving_columns"]
        return _compare(exported, _rows(given, by), lambda: function(**tensors(given)), is_valid)
    given, is_valid = _request(model, draw)
    if name in ("lite", "int8"):
        is_valid = is_valid and len(given[names[0]]) == 1
    if name == "keras" and len(given) > 1:
        # It says that it ignores other names. One value alone needs no name.
        given = {key: value for key, value in given.items() if key in names}
    known = [*given] if name == "keras" else names
    expected = _batch_of(model, given[known[0]]) if given and list(given) == known else None
    return _compare(
        exported, expected, lambda: answer_of(name, exported, given), is_valid, name == "int8"
    )


def tensors(given: dict[str, Any]) -> dict[str, Any]:
    """Arrays as tensors; what is no array stays as it is."""
    import tensorflow as tf

    return {
        key: tf.constant(value) if isinstance(value, np.ndarray) else value
        for key, value in given.items()
    }


def answer_of(name: str, exported: Exported, given: dict[str, Any]) -> Any:
    import tensorflow as tf

    if name == "saved_model":
        return exported.signatures["serving_default"](**tensors(given))
    if name == "session":
        ((key, value),) = given.items()
        return exported.session(key, value)
    if name == "keras":
        found = tensors(given)
        return exported.keras(*found.values() if len(found) == 1 else [found])
    interpreter = tf.lite.Interpreter(str(getattr(exported, name)))
    return interpreter.get_signature_runner()(**given)


def _compare(
    exported: Exported,
    expected: np.ndarray | None,
    answer: Callable[[], Any],
    is_valid: bool,
    is_rounded: bool = False,
) -> str:
    """The outcome of a request, of which NumPy says what it means."""
    try:
        found = np.asarray(answer()["probabilities"], np.float64)
    # A refusal is whatever the format raises, with a reason.
    except Exception as error:
        assert str(error).strip(), "an error without a reason"
        assert not is_valid, f"a valid request is refused: {error}"
        return REFUSED
    if expected is None:
        if found.size and np.isnan(found).all():
            # TensorFlow Lite has no operation that refuses.
            return REFUSED
        raise SilentDifference(f"an answer of shape {found.shape} to what has no meaning")
    wanted = exported.reference(expected)
    tolerance = 0.2 if is_rounded else 1e-4
    if found.shape != wanted.shape or not np.allclose(found, wanted, atol=tolerance):
        raise SilentDifference(f"{found[:2]} of shape {found.shape} instead of {wanted[:2]}")
    return SAME


def _main(directory: Path) -> None:
    """Exports all models, and answers requests for outcomes until the input ends."""
    models = {model: export(model, directory) for model in MODELS}
    print("ready", flush=True)
    for line in sys.stdin:
        name, number, *batch = json.loads(line)
        if name == _SERVER:
            print(json.dumps(models[number].reference(np.array(batch[0])).tolist()), flush=True)
            continue
        try:
            answer = [outcome(name, number, models), ""]
        except SilentDifference as error:
            answer = ["silent", str(error)]
        except Exception:
            answer = ["error", traceback.format_exc()]
        print(json.dumps(answer), flush=True)


class _Models:
    """The process of the models; it is started again if it ends."""

    def __init__(self, directory: Path):
        self._starts = itertools.count()
        self._directory = directory
        self._process: subprocess.Popen | None = None
        atexit.register(self._end)
        self._start()

    def _start(self) -> None:
        self.folder = self._directory / f"exports_{next(self._starts)}"
        self._process = processes.start_module(
            "tests.faults.fuzzed_exports",
            str(self.folder),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        for line in processes.standard_output(self._process):
            if line == "ready\n":
                return
        raise RuntimeError("the models cannot be exported")

    def _end(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def ask(self, *request: Any) -> Any:
        """The answer of the process.

        Raises:
            AssertionError: the process has ended.
        """
        process = self._process
        assert process is not None and process.stdin is not None
        process.stdin.write(json.dumps(request) + "\n")
        process.stdin.flush()
        for line in processes.standard_output(process):
            if line.startswith("["):
                return json.loads(line)
        code = process.wait()
        self._start()
        raise AssertionError(f"the process ended with {code}")

    def check(self, name: str, number: int) -> str:
        outcome, detail = self.ask(name, number)
        if outcome == "silent":
            raise SilentDifference(detail)
        assert outcome != "error", detail
        return outcome


# The server.


class _Server:
    """`make serve` with the SavedModels."""

    def __init__(self, models: _Models):
        self._models = models
        stack = contextlib.ExitStack()
        _, self._port = stack.enter_context(processes.model_server(models.folder, "--timeout=20"))
        atexit.register(stack.close)

    def check(self, number: int) -> str:
        model, draw = MODELS[number % 4], random.Random(number)
        body, expected, is_valid = _body(model, draw)
        status, answer = self._ask(model, body)
        assert status in (200, 400), f"{status}: {answer[:300]}"
        if status == 400:
            assert not is_valid, f"a valid request is refused: {answer[:300]!r}"
            return one_line(json.loads(answer)["error"])
        found = json.loads(answer)
        rows = found.get("predictions")
        probabilities = (
            found["outputs"]["probabilities"]
            if rows is None
            else [row["probabilities"] for row in rows]
        )
        if expected is None:
            raise SilentDifference(f"{answer[:200]!r} to what has no meaning: {body[:300]!r}")
        wanted = self._models.ask(_SERVER, model, expected.tolist()) if len(expected) else []
        if np.shape(probabilities) != np.shape(wanted) or not np.allclose(
            probabilities, wanted, atol=1e-4
        ):
            raise SilentDifference(f"{probabilities} instead of {wanted}: {body[:300]!r}")
        return SAME

    def _ask(self, model: str, body: bytes) -> tuple[int, bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=30)
        with contextlib.closing(connection):
            connection.request("POST", f"/v1/models/{model}:predict", body)
            response = connection.getresponse()
            return response.status, response.read()


def _body(model: str, draw: random.Random) -> tuple[bytes, np.ndarray | None, bool]:
    """A request in JSON, what it means, and whether it is as it should be."""
    if model == "table":
        given, is_valid = _columns(draw, _COLUMNS)
        expected = _rows_in_json(given)
        plain = {name: _plain(values) for name, values in given.items()}
        sizes = {len(values) if isinstance(values, list) else -1 for values in plain.values()}
        if draw.random() < 0.5 and len(sizes) == 1 and sizes != {-1}:
            rows = [dict(zip(plain, row, strict=True)) for row in zip(*plain.values(), strict=True)]
            if not rows and set(plain) != set(_COLUMNS):
                # Without rows, there are no names.
                expected = np.zeros((0, 4))
            if list(plain) == list(_COLUMNS) and draw.random() < 0.4:
                rows = [[*row.values()] for row in rows]
            return json.dumps({"instances": rows}).encode(), expected, is_valid
        return json.dumps({"inputs": plain}).encode(), expected, is_valid
    if model == "text":
        given, is_valid = _texts(draw)
        if "texts" in given and isinstance(given["texts"], np.ndarray):
            given["texts"] = np.array(
                [t if isinstance(t, str) else "b" for t in given["texts"].ravel()], object
            ).reshape(given["texts"].shape)
        name, expected = "texts", None
        if set(given) == {"texts"}:
            expected = _ids(given["texts"])
    else:
        (given, is_valid), name, expected = _request(model, draw), _NAMES[model], None
        if list(given) == [name]:
            array = _as_array(given[name])
            if _plain(given[name]) == []:
                # No samples, whatever their shape.
                array = np.zeros((0, *_SHAPES[model]), np.uint8)
            # JSON has lists of numbers only; an axis of size 1 behind all others is another shape.
            if array is not None and array.dtype.kind in "uif":
                expected = _batch_of(model, array)
                if model == "image" and array.dtype.kind == "f" and array.size:
                    expected = None
    plain = {key: _plain(value) for key, value in given.items()}
    if list(plain) == [name] and draw.random() < 0.6:
        key = draw.choice(["instances", "inputs"])
        if key == "instances" and isinstance(plain[name], list) and draw.random() < 0.5:
            return (
                json.dumps({key: [{name: value} for value in plain[name]]}).encode(),
                expected,
                is_valid,
            )
        return json.dumps({key: plain[name]}).encode(), expected, is_valid
    return json.dumps({"inputs": plain}).encode(), expected, is_valid


def _plain(value: Any) -> Any:
    """A value as JSON has it; complex numbers and bytes are none."""
    if isinstance(value, np.ndarray):
        value = value.tolist()
    if isinstance(value, list):
        return [_plain(each) for each in value]
    if isinstance(value, complex):
        return str(value)
    if isinstance(value, bytes):
        return {"b64": base64.b64encode(value).decode()}
    return value.item() if isinstance(value, np.generic) else value


def _rows_in_json(given: dict[str, Any]) -> np.ndarray | None:
    """As `_rows`; numbers that are NaN or infinite, and booleans, are none in JSON.

    "2.0" is ward 2, as tables write it.
    """
    ward = given.get("ward")
    if isinstance(ward, np.ndarray) and ward.dtype.kind == "U":
        given = {**given, "ward": ward.astype(np.float64)}
    found = _rows(given, _COLUMNS)
    for name, values in given.items():
        if name != "pain" and isinstance(values, np.ndarray | list):
            array = np.asarray(values)
            if array.dtype.kind == "f" and not np.isfinite(array).all():
                return None
    return found


if __name__ == "__main__":
    _main(Path(sys.argv[1]))
