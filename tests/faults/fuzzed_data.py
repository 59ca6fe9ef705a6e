"""Damaged and hostile data: LEAF's JSON, tables, images, prepared data sets, TFF's copies.

What is loaded from a damaged file has to be what a plain program reads from it, in the tests
below with `json`, `csv` or TensorFlow alone. Everything else has to be refused in one line.
"""

from __future__ import annotations

import contextlib
import csv
import functools
import io
import json
import random
import sqlite3
import struct
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import tensorflow as tf

from tests.faults.case import SAME, Case, SilentDifference, one_line
from tests.faults.fuzzed_flags import mutate
from tests.support import write_image, write_table, write_tfds
from tff_pcdd import data
from tff_pcdd.data import transforms
from tff_pcdd.errors import DataError, SettingError

_SPEC = data.InputSpec("image_file", (8, 8, 3), "string", max_pixels=250_000)


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
    for number in range(60):
        yield Case("csv bytes", str(number), functools.partial(_check_table, number))
    for number in range(60):
        yield Case("image list bytes", str(number), functools.partial(_check_list, number))
    for name, row in _rows().items():
        yield Case("csv values", name, functools.partial(_check_row, row))
    for kind, contents in _images().items():
        for number in range(40):
            yield Case(
                "image bytes", f"{kind} {number}", functools.partial(_check_image, kind, number)
            )
        for length in range(0, min(len(contents), 60), 3):
            cut = functools.partial(_check_contents, contents[:length])
            yield Case("truncated images", f"{kind}, {length} bytes", cut)
    for name, header in _headers().items():
        yield Case("image headers", name, functools.partial(_check_contents, header))
    for file in ("dataset_info.json", "features.json", "label.labels.txt", "train", "test"):
        for number in range(12):
            check = functools.partial(_check_tfds, file, number)
            yield Case("tfds bytes", f"{file} {number}", check)
    for number in range(40):
        yield Case("TFF copies", str(number), functools.partial(_check_cache, number))
    for name, make in _federations().items():
        yield Case("arrays", name, functools.partial(_check_federation, make))


@contextlib.contextmanager
def _refusals(*names: object) -> Iterator[list[str]]:
    """Collects REFUSED if the block refuses in one line that contains the names."""
    outcomes: list[str] = []
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            yield outcomes
    except (DataError, SettingError) as error:
        outcomes.append(one_line(error, *map(str, names)))


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


def _check_leaf(change: Callable[[bytes], bytes], directory: Path) -> str:
    """Loads a changed training file; what is loaded has to be what `json` reads."""
    for folder, text in (("train", change(_RIGHT)), ("test", _RIGHT)):
        (directory / folder).mkdir()
        (directory / folder / "data.json").write_bytes(text)
    with _refusals(directory) as outcomes:
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
    for folder, text in (("train", mutate(right, random.Random(number))), ("test", right)):
        (directory / folder).mkdir()
        (directory / folder / "data.json").write_bytes(text)
    with _refusals(directory) as outcomes:
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


# Tables of images.


def _isic(directory: Path) -> bytes:
    rows = []
    for i in range(12):
        name = f"ISIC_{i:07d}"
        fold = "test" if i % 4 == 3 else "train"
        rows.append({"image": name, "target": i % 8, "center": i % 3, "fold": fold})
        folder = directory / "ISIC_2019_Training_Input_preprocessed"
        folder.mkdir(exist_ok=True)
        (folder / f"{name}.jpg").write_bytes(b"")
    write_table(directory / "train_test_split", rows)
    return (directory / "train_test_split").read_bytes()


def _check_table(number: int, directory: Path) -> str:
    text = mutate(_isic(directory), random.Random(number))
    return _check_isic(text, directory)


def _check_isic(text: bytes, directory: Path) -> str:
    (directory / "train_test_split").write_bytes(text)
    with _refusals(directory) as outcomes:
        loaded = data.load_federation("fed_isic2019", "natural", data_dir=str(directory))
        outcomes.append(SAME)
    if outcomes == [SAME]:
        rows = list(csv.DictReader(io.StringIO(text.decode("utf-8-sig"), newline="")))
        rows = [row for row in rows if row["fold"] == "train"]
        images = [path.decode().rpartition("/")[2] for path in loaded.train.x]
        if images != [f"{row['image']}.jpg" for row in rows]:
            raise SilentDifference("other images")
        if loaded.train.y.tolist() != [float(row["target"]) for row in rows]:
            raise SilentDifference("other labels")
    return outcomes[0]


def _rows() -> dict[str, dict[str, str]]:
    """Values in a table that are wrong, or unusual."""
    labels = (
        "",
        "-1",
        "8",
        "nan",
        "inf",
        "1e400",
        "1.0",
        "1.5",
        str(2**32),
        str(2**40),
        "9" * 5000,
    )
    names = (
        "",
        "..",
        "../secret",
        "/etc/passwd",
        "a" * 5000,
        "a\0b",
        "\x1b[2J",
        "é",
        "\n",
        ".",
        "~",
    )
    return {
        **{f"label {text[:20]}": {"target": text} for text in (*labels, "0x1", "1_0", "٣", " 1 ")},
        **{f"image {text[:20]!r}": {"image": text} for text in names},
        **{f"fold {text!r}": {"fold": text} for text in ("", "Train", "validation", "train ")},
        **{f"center {text[:20]!r}": {"center": text} for text in ("", "é", "a" * 200_000, "\0")},
    }


def _check_row(changes: dict[str, str], directory: Path) -> str:
    _isic(directory)
    row = {"image": "ISIC_0000001", "target": "1", "center": "2", "fold": "train"}
    out = io.StringIO(newline="")
    writer = csv.DictWriter(out, row)
    writer.writeheader()
    test = {**row, "image": "ISIC_0000003", "fold": "test"}
    writer.writerows([row, {**row, **changes}, test])
    return _check_isic(out.getvalue().encode(), directory)


def _check_list(number: int, directory: Path) -> str:
    names = [f"train/n{i % 3}/image {i}.JPEG" for i in range(8)]
    for name in names:
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).write_bytes(b"")
    text = "".join(f"{name} {i % 3}\n" for i, name in enumerate(names)).encode()
    changed = mutate(text, random.Random(number))
    (directory / "ImageNet_LT_train.txt").write_bytes(changed)
    (directory / "ImageNet_LT_test.txt").write_bytes(text)
    with _refusals() as outcomes:
        loaded = data.load_federation("imagenet_lt", "iid", 2, data_dir=str(directory))
        outcomes.append(SAME)
    if outcomes == [SAME]:
        lines = [line for line in changed.decode("utf-8-sig").splitlines() if line.strip()]
        wanted = [line.rsplit(maxsplit=1) for line in lines]
        found = [Path(path.decode()) for path in loaded.train.x]
        if found != [directory / name for name, _ in wanted]:
            raise SilentDifference("other images")
        if loaded.train.y.tolist() != [float(label) for _, label in wanted]:
            raise SilentDifference("other labels")
    return outcomes[0]


# Images.


@functools.cache
def _images() -> dict[str, bytes]:
    draw = np.random.default_rng(0)
    pixels = draw.integers(0, 256, (20, 24, 3), np.uint8)
    row = bytes(draw.integers(0, 256, 24 * 3, np.uint8))
    header = struct.pack("<2sIHHI", b"BM", 54 + 20 * len(row), 0, 0, 54)
    info = struct.pack("<IiiHHIIiiII", 40, 24, 20, 1, 24, 0, 20 * len(row), 0, 0, 0, 0)
    return {
        "png": tf.io.encode_png(pixels).numpy(),
        "jpeg": tf.io.encode_jpeg(pixels).numpy(),
        "grey jpeg": tf.io.encode_jpeg(pixels[..., :1], progressive=True).numpy(),
        "bmp": header + info + row * 20,
    }


def _headers() -> dict[str, bytes]:
    """Files that state sizes of their own, and files of other types."""
    png, jpeg, bmp = (_images()[kind] for kind in ("png", "jpeg", "bmp"))
    found = {}
    for name, size in {
        "zero": 0,
        "501": 501,
        "int32": 2**31 - 1,
        "negative": 2**31,
        "uint32": 2**32 - 1,
    }.items():
        found[f"png height {name}"] = png[:20] + struct.pack(">I", size) + png[24:]
        found[f"png both {name}"] = png[:16] + struct.pack(">II", size, size) + png[24:]
        found[f"bmp height {name}"] = bmp[:22] + struct.pack("<I", size) + bmp[26:]
        found[f"bmp both {name}"] = bmp[:18] + struct.pack("<II", size, size) + bmp[26:]
    frame = next(i for i in range(len(jpeg)) if jpeg[i] == 0xFF and jpeg[i + 1] == 0xC0)
    for size in (0, 501, 2**16 - 1):
        found[f"jpeg {size}"] = (
            jpeg[: frame + 5] + struct.pack(">HH", size, size) + jpeg[frame + 9 :]
        )
    gif = b"GIF89a" + struct.pack("<HH", 2**16 - 1, 2**16 - 1)
    others = {
        "gif": gif,
        "webp": b"RIFF\0\0\0\0WEBPVP8 ",
        "svg": b"<svg/>",
        "tiff": b"II*\0",
        "elf": b"\x7fELF",
    }
    return {**found, **{f"type {name}": contents + bytes(100) for name, contents in others.items()}}


def _check_image(kind: str, number: int, directory: Path) -> str:
    return _check_contents(mutate(_images()[kind], random.Random(number)), directory)


@functools.cache
def _reader() -> Callable[[tf.Tensor], tf.Tensor]:
    return tf.function(
        lambda x: transforms.normalize(x, _SPEC), input_signature=[tf.TensorSpec([None], tf.string)]
    )


def _check_contents(contents: bytes, directory: Path) -> str:
    """Reads an image beside one that is whole; its pixels have to be those of TensorFlow."""
    whole = write_image(directory / "whole.png", value=80)
    path = directory / "fuzzed"
    path.write_bytes(contents)
    try:
        images = _reader()(tf.constant([whole, str(path).encode()])).numpy()
    except tf.errors.InvalidArgumentError as error:
        message = transforms.broken_images(str(error))
        assert message is not None, str(error)
        return one_line(message, str(path))
    assert images.shape == (2, 8, 8, 3)
    pixels = tf.io.decode_image(contents, 3, expand_animations=False)
    height, width = pixels.shape[:2]
    assert height * width <= _SPEC.max_pixels, "a large image was decoded"
    factor = np.float32(max(8 / height, 8 / width))
    size = [max(8, int(np.round(np.float32(side) * factor))) for side in (height, width)]
    resized = tf.image.resize(pixels, size, antialias=True)
    wanted = np.clip(np.round(tf.image.resize_with_crop_or_pad(resized, 8, 8)), 0, 255)
    if np.abs(images[1] - wanted).max() > 1 or (images[0] != 80).any():
        raise SilentDifference("other pixels")
    return SAME


# Prepared data sets.


def _check_tfds(file: str, number: int, directory: Path) -> str:
    folder = write_tfds(directory, size=2)
    (folder / "label.labels.txt").write_text("".join(f"class {i}\n" for i in range(10)))
    path = folder / file
    if not path.exists():
        path = next(folder.glob(f"*-{file}.tfrecord-*"))
    path.write_bytes(mutate(path.read_bytes(), random.Random(number)))
    with _refusals() as outcomes:
        loaded = data.load_federation("fashion_mnist", "iid", 2, data_dir=str(directory))
        outcomes.append(SAME)
    if outcomes == [SAME]:
        for part in (loaded.train, loaded.test):
            pixels = np.arange(2)[:, None, None, None] * np.ones((1, 28, 28, 1))
            if part.y.tolist() != [0, 1] or (part.x != pixels).any():
                raise SilentDifference("other samples")
    return outcomes[0]


def _check_cache(number: int, directory: Path) -> str:
    path = directory / "emnist_all.sqlite"
    levels = np.arange(784, dtype=np.float32).reshape(28, 28) % 256
    with sqlite3.connect(path) as database:
        database.execute(
            "CREATE TABLE examples (split_name TEXT, client_id TEXT, serialized_example_proto BLOB)"
        )
        database.execute(
            "CREATE TABLE client_metadata (client_id TEXT, split_name TEXT, num_examples INTEGER)"
        )
        for split in ("all_train", "all_test"):
            database.execute("INSERT INTO client_metadata VALUES ('f0', ?, 1)", (split,))
            pixels = tf.train.Feature(float_list=tf.train.FloatList(value=levels.ravel() / 255))
            label = tf.train.Feature(int64_list=tf.train.Int64List(value=[3]))
            features = tf.train.Features(feature={"pixels": pixels, "label": label})
            proto = tf.train.Example(features=features).SerializeToString()
            database.execute("INSERT INTO examples VALUES (?, 'f0', ?)", (split, proto))
    database.close()
    content = path.read_bytes()
    # The database is 24 kB, most of which is empty.
    draw = random.Random(number)
    changed = bytearray(content)
    for _ in range(2):
        place = draw.choice([i for i in draw.sample(range(len(content)), 200) if content[i]])
        changed[place] = draw.randrange(256)
    path.write_bytes(bytes(changed) if number % 4 else content[: draw.randrange(len(content))])
    with _refusals(directory) as outcomes:
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
    for value in (np.inf, -np.inf, 1e39, -1e308):
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
    with _refusals() as outcomes:
        federation = make()
        outcomes.append(SAME)
    if outcomes == [SAME] and make.keywords.keys() & {"pixel", "label", "index"}:  # type: ignore[attr-defined]
        raise SilentDifference(f"{make.keywords} is accepted")  # type: ignore[attr-defined]
    if outcomes == [SAME]:
        json.dumps(federation.summary(), allow_nan=False)
    return outcomes[0]
