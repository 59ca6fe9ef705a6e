"""Damaged data: LEAF's JSON, prepared data sets, TFF's copies, arrays.

What is loaded from a damaged file has to be what a plain program reads from it, here with
`json` alone. Everything else has to be refused in one line.
"""

from __future__ import annotations

import functools
import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from tests.data import test_tff_cache
from tests.faults.case import SAME, Case, SilentDifference
from tests.faults.mutations import mutate, refusals
from tests.support import write_tfds
from tff_pcdd import data


def cases(directory: Path) -> Iterator[Case]:
    """Damaged copies of small data sets, and values that are wrong in one place."""
    for name, user in _leaf_users().items():
        yield Case("LEAF JSON values", name, functools.partial(_check_leaf_user, user))
    for name, change in _leaf_files().items():
        yield Case("LEAF JSON files", name, functools.partial(_check_leaf, change))
    for number in range(150):
        change = functools.partial(_mutated, number)
        yield Case("LEAF JSON bytes", str(number), functools.partial(_check_leaf, change))
    for number in range(40):
        yield Case("LEAF text bytes", str(number), functools.partial(_check_text, number))
    for file in ("dataset_info.json", "features.json", "label.labels.txt", "train", "test"):
        for number in range(12):
            check = functools.partial(_check_tfds, file, number)
            yield Case("tfds bytes", f"{file} {number}", check)
    for number in range(40):
        yield Case("TFF copies", str(number), functools.partial(_check_cache, number))
    for name, make in _federations().items():
        yield Case("arrays", name, functools.partial(_check_federation, make))


# LEAF.

_GREY = [round(level / 255, 3) for level in range(256)] * 3 + [1.0] * 16


def _leaf_users() -> dict[str, dict]:
    """Users of which one value is wrong, or unusual."""
    pixels: dict[str, object] = {
        "NaN": float("nan"),
        "infinite": float("inf"),
        "negative infinite": float("-inf"),
        "beyond float32": 1e39,
        "1e308": 1e308,
        "-1e308": -1e308,
        "largest float32": 3.4028234e38,
        "tiny": 5e-324,
        "negative": -0.5,
        "beyond 1": 255,
        "beyond int64": 2**64,
        "400 digits": 10**400,
        "5000 digits": 0,
        "string": "1.0",
        "null": None,
        "true": True,
        "list": [0.5],
        "two values": [0.5, 0.5],
        "object": {},
    }
    users = {}
    for name, value in pixels.items():
        image = list(_GREY)
        image[17] = value
        users[f"pixel: {name}"] = {"x": [_GREY, image], "y": [1, 2]}
    labels: dict[str, object] = {
        **{
            str(value): value for value in (-1, 61, 62, 2**31, 2**32, 2**40, 2**63, 2**64, -(2**31))
        },
        "1.0": 1.0,
        "1.5": 1.5,
        "NaN": float("nan"),
        "1e300": 1e300,
        "infinite": float("inf"),
        "string": "1",
        "null": None,
        "true": True,
        "list": [1],
        "object": {},
        "400 digits": 10**400,
    }
    for name, value in labels.items():
        users[f"label: {name}"] = {"x": [_GREY, _GREY], "y": [1, value]}
    images: dict[str, object] = {
        "short": _GREY[:-1],
        "long": [*_GREY, 1.0],
        "empty": [],
        "text": "x" * 784,
        "null": None,
        "number": 784,
        "object": {str(i): 0.5 for i in range(784)},
        "nested": [[value] for value in _GREY],
    }
    for name, image in images.items():
        users[f"image: {name}"] = {"x": [_GREY, image], "y": [1, 2]}
    return {
        **users,
        "more labels": {"x": [_GREY], "y": [1, 2]},
        "more images": {"x": [_GREY, _GREY], "y": [1]},
        "no images": {"y": [1, 2]},
        "no labels": {"x": [_GREY, _GREY]},
        "more keys": {"x": [_GREY], "y": [3], "z": [{}]},
        "labels as an object": {"x": [_GREY], "y": {"0": 1}},
        "images as text": {"x": "ab", "y": [1, 2]},
    }


def _leaf_text(users: dict[str, dict]) -> bytes:
    return json.dumps(
        {
            "users": list(users),
            "num_samples": [_length(user) for user in users.values()],
            "user_data": users,
        }
    ).encode()


def _length(user: dict) -> int:
    return len(user["y"]) if isinstance(user.get("y"), list) else 1


def _check_leaf_user(user: dict, directory: Path) -> str:
    text = _leaf_text({"first": {"x": [_GREY], "y": [5]}, "second": user})
    return _check_leaf(lambda _: text, directory)


_RIGHT = _leaf_text(
    {
        "first": {"x": [_GREY, _GREY], "y": [1, 9]},
        "é\n": {"x": [_GREY], "y": [5]},
        "none": {"x": [], "y": []},
    }
)


def _leaf_files() -> dict[str, Callable[[bytes], bytes]]:
    """Files that are wrong as a whole."""
    return {
        "empty": lambda text: b"",
        "spaces": lambda text: b" \n\t" * 1000,
        "byte order mark": lambda text: b"\xef\xbb\xbf" + text,
        "UTF-16": lambda text: text.decode().encode("utf-16"),
        "list": lambda text: b"[" + text + b"]",
        "two values": lambda text: text + text,
        "NUL at the end": lambda text: text + b"\0",
        "deep lists": lambda text: b'{"users": ' + b"[" * 10**6,
        "deep objects": lambda text: b'{"user_data": ' + b'{"a":' * 10**6,
        "deep and closed": lambda text: (
            text[:-1] + b', "more": ' + b"[" * 10**5 + b"]" * 10**5 + b"}"
        ),
        "string without an end": lambda text: text[:-1] + b', "' + b'\\"' * 10**6,
        "many quotes": lambda text: b'{"' * 10**5,
        "key twice": lambda text: text[:-1] + b', "users": []}',
        "user twice": lambda text: text.replace(b'"none": {', b'"first": {'),
        "names of users are numbers": lambda text: text.replace(b'"none"', b"7", 1),
        "names of users are lists": lambda text: text.replace(b'"none"', b'["none"]', 1),
        "lone surrogate": lambda text: text.replace(b'"none"', b'"none\\ud800"'),
        "NUL in a name": lambda text: text.replace(b'"none"', b'"no\\u0000ne"'),
        "long name": lambda text: text.replace(b'"none"', b'"' + b"n" * 10**5 + b'"'),
        "samples are missing": lambda text: text.replace(b"[2, 1, 0]", b"[2, 1, 1]"),
        "negative size": lambda text: text.replace(b"[2, 1, 0]", b"[2, 1, -1]"),
        "huge size": lambda text: text.replace(b"[2, 1, 0]", b"[2, 1, 1000000000000000000000]"),
        "size as a fraction": lambda text: text.replace(b"[2, 1, 0]", b"[2, 1, 0.0]"),
        "size as text": lambda text: text.replace(b"[2, 1, 0]", b'[2, 1, "0"]'),
        "sizes as an object": lambda text: text.replace(b"[2, 1, 0]", b'{"none": 0}'),
        "invalid UTF-8": lambda text: text.replace(b"none", b"no\xffne"),
    }


def _mutated(number: int, text: bytes) -> bytes:
    """Random changes; most of them outside of the pixels, of which there are many."""
    draw = random.Random(number)
    if number % 2:
        return mutate(text, draw)
    start = text.index(b"[[") + 1
    end = text.index(b"]]", start)
    head, tail = mutate(text[: start + 40], draw), text[end:]
    return head + text[start + 40 : end] + (mutate(tail, draw) if number % 4 else tail)


def _write_leaf(directory: Path, train: bytes, test: bytes) -> None:
    for folder, text in (("train", train), ("test", test)):
        (directory / folder).mkdir()
        (directory / folder / "data.json").write_bytes(text)


def _check_leaf(change: Callable[[bytes], bytes], directory: Path) -> str:
    """Loads a changed training file; what is loaded has to be what `json` reads."""
    _write_leaf(directory, change(_RIGHT), _RIGHT)
    with refusals(directory) as outcomes:
        loaded = data.load_leaf(directory / "train", directory / "test", "femnist")
        outcomes.append(SAME)
    if outcomes == [SAME]:
        _compare_leaf(loaded, json.loads((directory / "train" / "data.json").read_bytes()))
    return outcomes[0]


def _compare_leaf(loaded: data.Federation, stated: dict) -> None:
    scale = loaded.input_spec.scale
    for number, client_id in enumerate(loaded.client_ids):
        user = stated["user_data"].get(client_id, {"x": [], "y": []})
        train, _ = loaded.client_examples(number)
        pixels = np.array(user["x"], float).reshape(-1, 28, 28, 1)
        if train.y.tolist() != user["y"] or len(pixels) != len(train):
            raise SilentDifference(f"{client_id!r}: labels {train.y} instead of {user['y']}")
        # Grey levels are written with three decimals.
        if len(pixels) and not np.allclose(train.x * scale, pixels, rtol=1e-6, atol=5.1e-4):
            raise SilentDifference(f"{client_id!r}: other pixels")


def _check_text(number: int, directory: Path) -> str:
    line = "To be, or not to be, that is the question:\nWhether 'tis nobler in the mind to"
    line = f"{line:80s}"
    right = _leaf_text({"HAMLET": {"x": [line, line[::-1]], "y": ["s", "T"]}})
    _write_leaf(directory, mutate(right, random.Random(number)), right)
    with refusals(directory) as outcomes:
        loaded = data.load_leaf(directory / "train", directory / "test", "shakespeare")
        outcomes.append(SAME)
    if outcomes == [SAME]:
        stated = json.loads((directory / "train" / "data.json").read_bytes())["user_data"]
        alphabet = loaded.input_spec.vocabulary or ""
        for client, client_id in enumerate(loaded.client_ids):
            examples, _ = loaded.client_examples(client)
            texts = ["".join(alphabet[i] if i < 80 else "\0" for i in row) for row in examples.x]
            for text, wanted in zip(texts, stated.get(client_id, {"x": []})["x"], strict=True):
                known = "".join(c if c in alphabet else "\0" for c in wanted)
                if text != known:
                    raise SilentDifference(f"{text!r} instead of {wanted!r}")
    return outcomes[0]


# Prepared data sets.


def _check_tfds(file: str, number: int, directory: Path) -> str:
    folder = write_tfds(directory, size=2)
    (folder / "label.labels.txt").write_text("".join(f"class {i}\n" for i in range(10)))
    path = folder / file
    if not path.exists():
        path = next(folder.glob(f"*-{file}.tfrecord-*"))
    path.write_bytes(mutate(path.read_bytes(), random.Random(number)))
    with refusals() as outcomes:
        loaded = data.load_federation("fashion_mnist", "iid", 2, data_dir=str(directory))
        outcomes.append(SAME)
    if outcomes == [SAME]:
        for part in (loaded.train, loaded.test):
            pixels = np.arange(2)[:, None, None, None] * np.ones((1, 28, 28, 1))
            if part.y.tolist() != [0, 1] or (part.x != pixels).any():
                raise SilentDifference("other samples")
    return outcomes[0]


def write_cache(path: Path) -> None:
    """A copy of TFF's EMNIST with one sample in each part."""
    levels = np.arange(784, dtype=np.float32).reshape(28, 28) % 256
    sample = test_tff_cache.image_sample(3, levels / 255)
    test_tff_cache.write(path, {part: {"f0": [sample]} for part in ("all_train", "all_test")})


def _check_cache(number: int, directory: Path) -> str:
    path = directory / "emnist_all.sqlite"
    write_cache(path)
    content = path.read_bytes()
    # The database is 24 kB, most of which is empty.
    draw = random.Random(number)
    changed = bytearray(content)
    for _ in range(2):
        place = draw.choice([i for i in draw.sample(range(len(content)), 200) if content[i]])
        changed[place] = draw.randrange(256)
    path.write_bytes(bytes(changed) if number % 4 else content[: draw.randrange(len(content))])
    with refusals(directory) as outcomes:
        loaded = data.load_federation("tff_emnist", "natural", data_dir=str(directory))
        outcomes.append(SAME)
    if outcomes == [SAME]:
        # The format has no checksums: a changed pixel remains one, but all values are in bounds.
        values = loaded.train.x * np.float32(loaded.input_spec.scale)
        if not np.isfinite(values).all() or loaded.train.y.min() < 0 or loaded.train.y.max() >= 62:
            raise SilentDifference("values that are no image")
    return outcomes[0]


# Arrays from Python.


def _federations() -> dict[str, Callable[[], data.Federation]]:
    """Federations of which one value is wrong."""
    found = {}
    for value in (np.inf, -np.inf, np.nan, 1e39, -1e308):
        found[f"input {value}"] = functools.partial(_federation, pixel=value)
    for label in (-1, 3, 2**31, 2**32, 2**40, 2**63, 2**64 - 1, -(2**31) - 1):
        found[f"label {label}"] = functools.partial(_federation, label=label)
    for index in (-1, 6, 2**31, 2**40, -(2**40)):
        found[f"index {index}"] = functools.partial(_federation, index=index)
    for client_id in ("", "\0", "a\ud800", "b", "x" * 10**5):
        found[f"client id {client_id[:5]!r}"] = functools.partial(_federation, client_id=client_id)
    return found


def _federation(pixel=0.5, label=1, index=1, client_id="a") -> data.Federation:
    x = np.zeros((6, 4, 4, 1), np.float32)
    with np.errstate(over="ignore"):
        x[4, 1, 2] = np.float64(pixel)
    y = np.array([0, 1, 2, 0, 0, label])
    examples = data.Examples(x, y)
    test = data.Examples(np.zeros((3, 4, 4, 1), np.float32), np.arange(3))
    clients = [
        data.ClientIndices(client_id, np.array([0, index]), np.array([0])),
        data.ClientIndices("b", np.array([2, 3, 4, 5]), np.array([1, 2])),
    ]
    spec = data.InputSpec("image", (4, 4, 1), "float32")
    return data.Federation("toy", 3, ("a", "b", "c"), spec, examples, test, clients)


def _check_federation(make: Callable[[], data.Federation], directory: Path) -> str:
    with refusals() as outcomes:
        federation = make()
        outcomes.append(SAME)
    if outcomes == [SAME] and make.keywords.keys() & {"pixel", "label", "index"}:  # type: ignore[attr-defined]
        raise SilentDifference(f"{make.keywords} is accepted")  # type: ignore[attr-defined]
    if outcomes == [SAME]:
        json.dumps(federation.summary(), allow_nan=False)
    return outcomes[0]
