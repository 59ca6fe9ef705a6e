"""Image lists of unknown origin: paths that lead elsewhere, and images that are too large."""

import os
import struct
import zlib

import numpy as np
import pytest
import tensorflow as tf

from tests.data.refusals import unusable
from tests.support import write_image
from tff_pcdd.data import InputSpec, LoadRequest, image_headers, normalize, sources
from tff_pcdd.data.transforms import broken_images, decode_image


@pytest.fixture
def root(tmp_path):
    """An ImageNet-LT of two images, and an image beside it that does not belong to it."""
    for name in ("a", "b"):
        write_image(tmp_path / "data" / "train" / f"{name}.JPEG")
    write_image(tmp_path / "secret.JPEG")
    _list(tmp_path / "data", "train/a.JPEG")
    return tmp_path / "data"


def _list(root, path):
    for split in ("train", "test"):
        (root / f"ImageNet_LT_{split}.txt").write_text(f"{path} 0\n")


def _refused(root, *parts, **options):
    with unusable(*parts):
        sources.create("imagenet_lt", data_dir=str(root), **options).load(LoadRequest())


@pytest.mark.parametrize("path", ["../secret.JPEG", "train/../../secret.JPEG", "/etc/hostname"])
def test_paths_stay_in_the_directory(root, path):
    _list(root, path)
    _refused(root, f"lists '{path}', which is not a path below {root}")


def test_absolute_paths_in_the_directory(root):
    _list(root, root / "train" / "a.JPEG")
    loaded = sources.create("imagenet_lt", data_dir=str(root)).load(LoadRequest())
    assert loaded.train.x.tolist() == [os.fsencode(root / "train" / "a.JPEG")]


def test_links_stay_in_the_directory(root):
    (root / "train" / "c.JPEG").symlink_to(root / "train" / "a.JPEG")
    _list(root, "train/c.JPEG")
    loaded = sources.create("imagenet_lt", data_dir=str(root)).load(LoadRequest())
    assert len(loaded.train) == 1
    (root / "train" / "d.JPEG").symlink_to(root.parent / "secret.JPEG")
    _list(root, "train/d.JPEG")
    _refused(root, f"d.JPEG is a link to a file outside of {root}")
    (root / "more").symlink_to(root.parent)
    _list(root, "more/secret.JPEG")
    _refused(root, f"lists files in {root / 'more'}, a link to a folder outside of {root}")


def test_the_directory_itself_may_be_a_link(root, tmp_path):
    (tmp_path / "link").symlink_to(root)
    loaded = sources.create("imagenet_lt", data_dir=str(tmp_path / "link")).load(LoadRequest())
    assert len(loaded.train) == 1


def test_only_regular_files_are_images(root):
    os.mkfifo(root / "train" / "pipe.JPEG")
    _list(root, "train/pipe.JPEG")
    _refused(root, "pipe.JPEG is not a regular file")
    (root / "train" / "zero.JPEG").symlink_to("/dev/zero")
    _list(root, "train/zero.JPEG")
    _refused(root, "zero.JPEG is not a regular file")
    (root / "train" / "folder.JPEG").mkdir()
    _list(root, "train/folder.JPEG")
    _refused(root, "folder.JPEG is not a regular file")


def test_tables_are_regular_files(root):
    (root / "ImageNet_LT_train.txt").unlink()
    os.mkfifo(root / "ImageNet_LT_train.txt")
    _refused(root, "ImageNet_LT_train.txt is not a regular file")


def test_files_that_are_too_long_to_be_images(root):
    with open(root / "train" / "huge.JPEG", "wb") as file:
        file.truncate(10**12)
    _list(root, "train/huge.JPEG")
    _refused(root, "huge.JPEG has 1000000000000 bytes", "that max_image_pixels allows")


def _png(height, width):
    """A valid grey PNG whose rows are all zeros, compressed to a thousandth."""

    def chunk(kind, content):
        check = struct.pack(">I", zlib.crc32(kind + content))
        return struct.pack(">I", len(content)) + kind + content + check

    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    rows = zlib.compress(bytes((width + 1) * height))
    chunks = chunk(b"IHDR", header) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + chunks


def _bmp(height, width):
    row = bytes((3 * width + 3) // 4 * 4)
    pixels = row * abs(height)
    header = struct.pack("<2sIHHI", b"BM", 54 + len(pixels), 0, 0, 54)
    info = struct.pack("<IiiHHIIiiII", 40, width, height, 1, 24, 0, len(pixels), 0, 0, 0, 0)
    return header + info + pixels


@pytest.mark.parametrize(
    ("contents", "size"),
    [
        (lambda: tf.io.encode_jpeg(np.zeros((7, 300, 3), np.uint8)).numpy(), [7, 300]),
        (lambda: tf.io.encode_png(np.zeros((300, 70000, 1), np.uint8)).numpy(), [300, 70000]),
        (lambda: _png(5, 9), [5, 9]),
        (lambda: _bmp(5, 9), [5, 9]),
        (lambda: _bmp(-5, 9), [5, 9]),
        (lambda: b"\x89PNG\r\n\x1a\n", [0, 0]),
        (lambda: b"GIF89a\x05\x00\x05\x00", [0, 0]),
        (lambda: b"", [0, 0]),
        (lambda: b"BM", [0, 0]),
    ],
)
def test_sizes_in_headers(contents, size):
    assert image_headers.image_size(tf.constant(contents())).numpy().tolist() == size


def test_large_images_are_not_decoded(tmp_path):
    spec = InputSpec("image_file", (8, 8, 3), "string", max_pixels=999 * 1000)
    paths = []
    for name, contents in (("good.png", _png(999, 1000)), ("bomb.png", _png(1000, 1000))):
        (tmp_path / name).write_bytes(contents)
        paths.append(str(tmp_path / name).encode())
    assert normalize(tf.constant(paths[:1]), spec).shape == (1, 8, 8, 3)
    with pytest.raises(tf.errors.InvalidArgumentError) as caught:
        tf.function(lambda x: normalize(x, spec))(tf.constant(paths))
    reason = "image files are missing, broken or above max_image_pixels"
    assert broken_images(str(caught.value)) == f"{reason}: {tmp_path / 'bomb.png'}"
    with pytest.raises(tf.errors.InvalidArgumentError, match="image of at most 999000 pixels"):
        decode_image(tf.constant((tmp_path / "bomb.png").read_bytes()), spec)


def test_sizes_whose_product_overflows_are_refused():
    header = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + b"\xff" * 8
    assert not image_headers.within(tf.constant(header), 2**31 - 1)


def test_the_limit_is_a_setting(root):
    source = sources.create("imagenet_lt", data_dir=str(root), max_image_pixels=100)
    assert source.input_spec().max_pixels == 100
    assert source.load(LoadRequest()).input_spec.max_pixels == 100
    assert sources.create("imagenet_lt", data_dir=str(root)).input_spec().max_pixels == 50_000_000
