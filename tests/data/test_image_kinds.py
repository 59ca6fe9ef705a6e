"""Kinds of image files: formats, bits, colors, transparency and orientation, against Pillow."""

import importlib.util
import io
import os
import pathlib

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image, ImageOps

from tests.data.image_cases import (
    DICOM,
    HEIC,
    HEIGHT,
    ORIENTATION,
    WEB_PAGE,
    WIDTH,
    content,
    deep_color,
    folder,
    glass,
    held,
    many,
    photos,
    picture,
    several_frames,
)
from tff_pcdd import data
from tff_pcdd.data import DataError, image_headers, pillow
from tff_pcdd.data.digest import data_digest
from tff_pcdd.data.pillow import as_png
from tff_pcdd.data.sources import _image_files
from tff_pcdd.export import inputs


def by_name(federation, root):
    """The stored pixels of each file, and its path."""
    parts = (federation.train, federation.test)
    pairs = [pair for part in parts for pair in zip(part.ids, part.x, strict=True)]
    return {str(root / name): x for name, x in pairs}


@pytest.mark.parametrize(
    ("format", "end", "modes", "options"),
    [
        ("TIFF", ".tif", ("1", "L", "LA", "P", "RGB", "RGBA", "CMYK"), {}),
        ("TIFF", ".tiff", ("L", "RGB"), {"compression": "tiff_lzw"}),
        ("WEBP", ".webp", ("L", "RGB", "RGBA"), {}),
        ("BMP", ".bmp", ("1", "L", "P", "RGB", "RGBA"), {}),
        ("GIF", ".gif", ("1", "L", "P", "RGB"), {}),
        ("PNG", ".png", ("1", "L", "LA", "P", "RGB", "RGBA"), {}),
        ("JPEG", ".JPG", ("L", "RGB", "CMYK"), {"quality": 95}),
    ],
)
def test_formats_are_read_as_pillow_reads_them(format, end, modes, options, tmp_path):
    for mode in modes:
        root = folder(tmp_path / mode, many(format, end, mode, **options))
        for channels, target in ((1, "L"), (3, "RGB")):
            made = data.from_folder(root, image_channels=channels)
            assert made.input_spec.shape == (HEIGHT, WIDTH, channels)
            # Decoders of JPEG, and TensorFlow's shades of grey of PNG, may differ in rounding.
            tolerance = {"JPEG": 8, "PNG": 3 * (channels == 1)}.get(format, 0)
            for path, x in by_name(made, root).items():
                wanted = np.asarray(Image.open(path).convert(target)).reshape(x.shape)
                difference = np.abs(x.astype(int) - wanted)
                assert difference.max() <= tolerance, (mode, channels)
                assert difference.mean() <= tolerance / 3
        is_grey = mode in ("1", "L", "LA") and format != "WEBP"
        # GIF has palettes only; Pillow takes those of shades for grey.
        if format != "GIF":
            assert data.from_folder(root).input_spec.shape[-1] == (1 if is_grey else 3)


@pytest.mark.parametrize("is_negative", [False, True])
def test_tiff_images_of_16_bits_keep_their_range(is_negative, tmp_path, warnings_again):
    """With 12 bits, or with a white of 0, which Pillow leaves to its callers."""
    white = {262: 0} if is_negative else {}
    files = [(".tif", content(picture(k, "I;16"), "TIFF", tiffinfo=white)) for k in range(12)]
    root = folder(tmp_path, files)
    made = data.from_folder(root)
    values = {path: np.asarray(Image.open(path)).astype(float) for path in by_name(made, root)}
    if is_negative:
        values = {path: 65535 - value for path, value in values.items()}
    low = int(min(value.min() for value in values.values()))
    high = int(max(value.max() for value in values.values()))
    assert made.input_spec.pixel_range == (low, high)
    assert f"{low} becomes black and {high} white" in warnings_again.text
    for path, x in by_name(made, root).items():
        np.testing.assert_allclose(x[..., 0], (values[path] - low) * 255 / (high - low), atol=0.51)


@pytest.mark.parametrize(
    ("name", "found", "reason"),
    [
        ("x.tif", deep_color(), "of the kind RGB with 16/16/16 bits, which is not read; convert"),
        ("x.tif", content(Image.fromarray(np.ones((3, 3), np.float32)), "TIFF"), "of the kind F"),
        ("x.tif", content(Image.fromarray(np.ones((3, 3), np.int32)), "TIFF"), "of the kind I"),
        ("x.tif", content(picture(0), "TIFF")[:90], "is a TIFF image that is broken"),
        ("x.webp", content(picture(0), "WEBP")[:60], "is a WebP image that is broken"),
        ("x.bmp", content(picture(0), "BMP")[:99], "is broken: not a whole image"),
        ("x.dcm", DICOM, "is a DICOM file that is broken"),
        ("x.DCM", b"\x08\0\x05\0old", "is a DICOM file that is broken"),
        ("IM0001", DICOM, "is a DICOM file that is broken"),
        ("x.heic", HEIC, "is an HEIC image, not JPEG, PNG, TIFF"),
        ("x.jpg", HEIC, "is an HEIC image, not JPEG, PNG, TIFF"),
        # No preamble is before it.
        ("x.jpg", b"DICM", "not a JPEG, PNG, TIFF, WebP, BMP, GIF or DICOM image"),
        ("x.jpg", WEB_PAGE, "is a web page or XML"),
        ("x.jpg", b"version https://git-lfs.github.com/spec/v1", "is a pointer of Git LFS"),
        ("x.jpg", b"", "the file is empty"),
        ("x.jpg", b"\x89PNG\r\n\x1a\n" + bytes(40), "is broken: not a whole image"),
        ("x.jpg", content(picture(0), "JPEG")[:-60], "is broken: not a whole image"),
        ("x.png", content(picture(0), "PNG")[:90], "is broken: not a whole image"),
        ("x.jpg", b"\0\0\0\x0cjP  \r\n", "is a JPEG 2000 image, not JPEG"),
    ],
)
def test_files_that_would_not_be_read_with_their_values(
    name, found, reason, tmp_path, warnings_again
):
    root = folder(tmp_path, many("PNG", ".png"))
    (root / "a" / "x" / name).write_bytes(found)
    with pytest.raises(DataError) as caught:
        data.from_folder(root)
    assert str(caught.value).startswith(f"a/x/{name}: ")
    assert reason in str(caught.value)
    assert "skip_broken_images leaves such files out" in str(caught.value)
    assert "\n" not in str(caught.value)
    made = data.from_folder(root, skip_broken_images=True)
    assert made.notes == {"broken_images_left_out": 1}
    assert f"1 broken image left out: a/x/{name}" in warnings_again.text
    assert len(made.train) + len(made.test) == 12


def test_files_with_the_name_of_another_format_are_read_and_counted(tmp_path, warnings_again):
    kinds = ["WEBP", "PNG", "GIF", "JPEG", "TIFF", "BMP"] * 2
    files = [(".jpg", content(picture(k), kind, quality=95)) for k, kind in enumerate(kinds)]
    root = folder(tmp_path, files)
    made = data.from_folder(root)
    assert made.notes == {"misnamed_images_read": 10}
    assert "10 of 12 images, such as a/x/00.jpg, are not in the format that" in warnings_again.text
    for path, x in by_name(made, root).items():
        wanted = np.asarray(Image.open(path).convert("RGB")).astype(int)
        assert np.abs(x - wanted).max() <= 8 * (Image.open(path).format == "JPEG")


def test_several_frames_and_transparency_are_named(tmp_path, warnings_again):
    files = many("PNG", ".png")
    for format, end in (("GIF", ".gif"), ("TIFF", ".tif"), ("WEBP", ".webp")):
        files.append((end, several_frames(format)))
    opaque = glass().copy()
    opaque.putalpha(255)
    files += [(".png", content(image, "PNG")) for image in (glass(), opaque)]
    root = folder(tmp_path, files)
    made = data.from_folder(root)
    assert made.notes == {"first_frames_read": 3, "transparent_images_read": 1}
    assert "such as a/x/12.gif, have several frames or pages" in warnings_again.text
    assert "1 of 17 images, such as b/y/15.png, are partly transparent" in warnings_again.text
    pixels = by_name(made, root)
    for number in (12, 13):
        name = next(root.glob(f"*/*/{number}.*"))
        np.testing.assert_array_equal(pixels[str(name)], picture(20, "P").convert("RGB"))
    np.testing.assert_array_equal(pixels[str(root / "b/y/15.png")], glass().convert("RGB"))


# Photos.


@pytest.mark.parametrize("in_memory", [True, False])
@pytest.mark.parametrize(
    ("format", "end", "mode"),
    [
        ("JPEG", ".jpg", "RGB"),
        ("PNG", ".png", "RGB"),
        ("WEBP", ".webp", "RGB"),
        ("TIFF", ".tif", "RGB"),
        # Pillow maps such files into memory, and misreads those that are turned.
        ("TIFF", ".tif", "L"),
    ],
)
def test_photos_are_read_upright(
    format, end, mode, in_memory, tmp_path, monkeypatch, warnings_again
):
    quality = {"quality": 95} if format == "JPEG" else {"lossless": True}
    root = folder(tmp_path, photos(format, end, mode, **quality))
    if not in_memory:
        monkeypatch.setattr(_image_files, "_IN_MEMORY", 100)
    made = data.from_folder(root, image_size=HEIGHT, input_normalization="none")
    assert made.notes == {"photos_turned_upright": 14}
    assert "14 of 16 images, such as a/x/04" in warnings_again.text
    is_read_once = format in ("WEBP", "TIFF")
    assert (made.train.x.ndim > 1) is (in_memory or is_read_once)
    for part in (made.train, made.test):
        pixels = data.normalize(tf.constant(part.x), made.input_spec).numpy() * 255
        for name, x in zip(part.ids, pixels, strict=True):
            upright = ImageOps.exif_transpose(Image.open(io.BytesIO((root / name).read_bytes())))
            left, top = ((side - HEIGHT) // 2 for side in upright.size)
            wanted = np.asarray(upright)[top : top + HEIGHT, left : left + HEIGHT].astype(int)
            assert np.abs(x - wanted.reshape(x.shape)).max() <= 8 * (format == "JPEG") + 1e-3, name
    if is_read_once or not in_memory:
        return
    # Exported models do the same, also those of arrays.
    decode = tf.function(lambda x: inputs.from_image_files(x, made.input_spec))
    files = tf.constant([(root / name).read_bytes() for name in made.train.ids])
    expected = data.normalize(tf.constant(made.train.x), made.input_spec)
    np.testing.assert_allclose(decode(files), expected, atol=1e-5)


def test_sizes_are_those_of_upright_photos(tmp_path):
    stored = [picture(k).rotate(90, expand=True) for k in range(12)]
    files = [(".jpg", content(image, "JPEG", exif=held(6))) for image in stored[:6]]
    files += [(".tif", content(image, "TIFF", exif=held(8))) for image in stored[6:]]
    assert data.from_folder(folder(tmp_path, files)).input_spec.shape == (HEIGHT, WIDTH, 3)


def test_turned_photos_change_the_digest_of_the_data(tmp_path, monkeypatch):
    """Runs from before photos were turned must not continue with others."""
    monkeypatch.setattr(_image_files, "_IN_MEMORY", 100)
    files = [(".jpg", content(picture(k), "JPEG", exif=held(3))) for k in range(12)]
    root = folder(tmp_path, files)
    made = data.from_folder(root)
    monkeypatch.setattr(pillow, "_orientation", lambda: lambda contents: 1)
    before = data.from_folder(root)
    assert before.train.x.tolist() == made.train.x.tolist()
    assert data_digest(before) != data_digest(made)


def test_notes_that_only_some_viewers_read_are_named(tmp_path, warnings_again):
    files = many("PNG", ".png")
    xmp = b'<x:xmpmeta><rdf:Description tiff:Orientation="6"/></x:xmpmeta>'
    files.append((".jpg", content(picture(20), "JPEG", xmp=xmp, quality=95)))
    root = folder(tmp_path, files)
    made = data.from_folder(root)
    assert made.notes == {"turned_photos_read_as_stored": 1}
    assert "1 of 13 images, such as a/x/12.jpg, are turned or mirrored according to notes that" in (
        warnings_again.text
    )
    assert made.input_spec.shape == (HEIGHT, WIDTH, 3)


@pytest.mark.parametrize(
    "found",
    [
        b"",
        b"\xff\xd8\xff\xe1\0\0",
        b"\xff\xd8\xff\xe1\xff\xffExif\0\0",
        b"\xff\xd8\xff\xe1\xff\xffExif\0\0MM\0*\xff\xff\xff\xff\x01\x12",
        b"\xff\xd8\xff\xe1\xff\xffExif\0\0II*\0\x08\0\0\0\xff\xff" + b"\x12\x01" * 30,
        b"\x89PNG\r\n\x1a\neXIfII*\0\xff\xff\xff\xff",
        b"II*\0",
    ],
)
def test_damaged_exif_data_say_nothing(found):
    assert int(image_headers.orientation(tf.constant(found))) == 1


def test_exif_data_with_any_damage_say_something():
    found = content(picture(0), "JPEG", exif=held(6))[:120]
    draw = np.random.default_rng(0)
    read = tf.function(image_headers.orientation, input_signature=[tf.TensorSpec([], tf.string)])
    for _ in range(200):
        damaged = bytearray(found[: draw.integers(len(found))] + found)
        for place in draw.integers(2, len(damaged), 4):
            damaged[place] = draw.integers(256)
        assert 1 <= int(read(bytes(damaged))) <= 8


def test_other_exif_data_and_markers_before_them():
    for order, kind, value in (("big", 3, 6), ("little", 4, 8), ("little", 1, 3), ("big", 4, 5)):
        number = value.to_bytes({1: 1, 3: 2, 4: 4}[kind], order).ljust(4, b"\0")
        fields = [(0x010F, 2, b"abc\0"), (ORIENTATION, kind, number)]
        table = len(fields).to_bytes(2, order) + b"".join(
            tag.to_bytes(2, order) + of.to_bytes(2, order) + (1).to_bytes(4, order) + four
            for tag, of, four in fields
        )
        exif = {"big": b"MM\0*", "little": b"II*\0"}[order] + (8).to_bytes(4, order) + table
        segment = b"Exif\0\0" + exif + bytes(4)
        other = b"\xff\xe0\0\x06ab\xff\xda"
        file = (
            b"\xff\xd8" + other + b"\xff\xff\xe1" + (len(segment) + 2).to_bytes(2, "big") + segment
        )
        assert int(image_headers.orientation(tf.constant(file + b"\xff\xda"))) == value


# Large data sets, and serving.


def test_files_that_are_read_once_must_fit_into_memory(tmp_path, monkeypatch):
    root = folder(tmp_path, many("TIFF", ".tif"))
    monkeypatch.setattr(_image_files, "_IN_MEMORY", 100)
    assert data.from_folder(root).input_spec.kind == "image"
    monkeypatch.setattr(os, "sysconf", lambda name: 10)
    with pytest.raises(DataError, match=r"12 files, such as a/x/00\.tif, are not plain PNG or"):
        data.from_folder(root)


def test_images_that_are_cut_behind_their_header_are_named(tmp_path):
    root = folder(tmp_path, many("JPEG", ".jpg"))
    path = root / "b" / "x" / "05.jpg"
    path.write_bytes(path.read_bytes()[:-4])
    with pytest.raises(DataError, match=r"b/x/05\.jpg: is broken: not a whole JPEG image; skip"):
        data.from_folder(root)
    made = data.from_folder(root, skip_broken_images=True)
    assert made.notes == {"broken_images_left_out": 1}


def test_the_server_reads_files_as_the_training_does(tmp_path):
    # The server does not import this package, and the reverse.
    place = pathlib.Path(__file__).parents[2] / "serving" / "images.py"
    spec = importlib.util.spec_from_file_location("images", place)
    server = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(server)
    deep = picture(0, "I;16")
    for format, image, options in (
        ("TIFF", deep, {}),
        ("TIFF", deep, {"tiffinfo": {262: 0}}),
        ("TIFF", picture(0, "CMYK"), {"exif": held(6)}),
        ("TIFF", picture(0, "LA"), {}),
        ("WEBP", picture(0, "RGBA"), {"exif": held(8)}),
        ("BMP", picture(0, "P"), {}),
        ("GIF", picture(0, "L"), {}),
        ("JPEG", picture(0, "CMYK"), {}),
    ):
        found = content(image, format, **options)
        (tmp_path / "file").write_bytes(found)
        for channels in (1, 3):
            read = server.as_read_by_models(found, channels)
            if format == "JPEG" and channels == 3:
                assert read == found
            else:
                assert read == as_png(str(tmp_path / "file"), channels)
    for found, reason in (
        (deep_color(), "pixels of the kind RGB with too many bits"),
        (content(picture(0), "WEBP")[:60], "is broken"),
    ):
        with pytest.raises(ValueError, match=reason):
            server.as_read_by_models(found, 3)
