"""Damaged tables and images of image sets.

What is loaded from a damaged file has to be what a plain program reads from it, here with `csv` or
TensorFlow alone. Everything else has to be refused in one line.
"""

from __future__ import annotations

import csv
import functools
import io
import random
import struct
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import tensorflow as tf

from tests.faults.case import SAME, Case, SilentDifference, one_line
from tests.faults.mutations import mutate, refusals
from tests.support import write_image, write_table
from tff_pcdd import data
from tff_pcdd.data import transforms

_SPEC = data.InputSpec("image_file", (8, 8, 3), "string", max_pixels=250_000)


def cases(directory: Path) -> Iterator[Case]:
    """Damaged copies of small tables and images, and values that are wrong in one place."""
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
    with refusals(directory) as outcomes:
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
    with refusals() as outcomes:
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
