"""What an image file is, as Pillow reads it, and files that TensorFlow does not read as PNG."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import io
import os
import pathlib
import sys
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from etils import epy

from tff_pcdd import files
from tff_pcdd.data import dicom, image_headers
from tff_pcdd.errors import DataError

with epy.lazy_imports():
    import tensorflow as tf

# Formats that Pillow reads, by its names, and what the names of files end with.
_SUFFIXES = {
    "JPEG": (".jpg", ".jpeg", ".jpe", ".jfif"),
    "PNG": (".png",),
    "TIFF": (".tif", ".tiff"),
    "WEBP": (".webp",),
    "BMP": (".bmp", ".dib"),
    "GIF": (".gif",),
}
_DICOM = (".dcm", ".dicom")
_OF_FORMATS = {**_SUFFIXES, dicom.FORMAT: _DICOM}
_READ = {suffix for suffixes in _OF_FORMATS.values() for suffix in suffixes}
# Images that are not read; in a folder of images, they are named instead of left out.
_REFUSED = {".heic", ".heif", ".avif", ".jp2"}

FORMATS = "JPEG, PNG, TIFF, WebP, BMP, GIF or DICOM"

# Formats of which TensorFlow reads the pixels, and how files begin that are in one or may be.
_TENSORFLOW = ("JPEG", "PNG")
_STARTS = (b"\x89PNG", b"\xff\xd8\xff", b"BM")

# Pillow's modes of grey images, of those of 16 bits, and of all that can be converted.
_GREY = {"1", "L", "LA", "La"}
_DEEP = {"I;16", "I;16B", "I;16L"}
_MODES = _GREY | _DEEP | {"P", "PA", "RGB", "RGBA", "RGBa", "RGBX", "CMYK", "YCbCr"}

# Tags of TIFF files: the bits of each channel, what is white, and the value by which 0 is white.
_BITS, _PHOTOMETRIC, _WHITE_IS_ZERO = 258, 262, 0


@dataclasses.dataclass(frozen=True)
class Header:
    """What an image file is.

    Attributes:
        hash: hash of its bytes and, if it is turned upright, of the orientation.
        size: height and width of the upright image, in pixels.
        format: one of the formats that are read.
        mode: Pillow's name for the kind of its pixels.
        is_deep: whether channels have 16 bits, or it is a DICOM file without a window.
        is_turned: whether the pixels are turned upright, as the orientation in EXIF says.
        is_told_otherwise: whether it is turned, but only by notes other than EXIF.
        is_transparent: whether a pixel is not opaque.
        has_frames: whether there are several frames or pages.
        window: centre, width and function of the window of a DICOM file, if it has one.
        patient: the PatientID of a DICOM file; empty if there is none.
    """

    hash: str
    size: tuple[int, int]
    format: str
    mode: str
    is_deep: bool
    is_turned: bool = False
    is_told_otherwise: bool = False
    is_transparent: bool = False
    has_frames: bool = False
    window: tuple[float, float, str] | None = None
    patient: str = ""

    @property
    def is_dicom(self) -> bool:
        return self.format == dicom.FORMAT

    @property
    def is_grey(self) -> bool:
        return self.mode in _GREY | _DEEP | {"I"}

    def is_misnamed(self, path: str) -> bool:
        """Whether the end of the file's name is that of another format."""
        suffix = pathlib.PurePath(path).suffix.lower()
        return suffix in _READ and suffix not in _OF_FORMATS[self.format]

    def needs_conversion(self, channels: int) -> bool:
        """Whether TensorFlow does not read the file with this number of channels."""
        return self.format not in _TENSORFLOW or (self.mode == "CMYK" and channels == 1)


def is_image(name: str) -> bool:
    """Whether a file is an image by its name, also one that is not read."""
    return pathlib.PurePath(name).suffix.lower() in _READ | _REFUSED


def is_dicom(path: str | os.PathLike) -> bool:
    """Whether a regular file is a DICOM file; they often have no suffix."""
    try:
        with open(path, "rb") as file:
            return dicom.has_preamble(file.read(dicom.PREAMBLE))
    except OSError:
        return False


def look_at(path: str, max_pixels: int, *, whole: bool, windows: bool = True) -> Header | str:
    """Reads a file once: what it is, or what is wrong with it.

    Args:
        path: the file.
        max_pixels: the most pixels of an image.
        whole: whether the pixels are decoded too, which shows what is wrong behind the header. This
            is always done for files that TensorFlow does not read.
        windows: whether the windows of DICOM files are used.
    """
    from PIL import Image

    start = b""
    try:
        with open(path, "rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
            file.seek(0)
            start = file.read(512)
            if _is_dicom(start, path):
                return _dicom_header(path, digest, max_pixels, windows=windows)
            file.seek(0)
            with Image.open(file, formats=tuple(_SUFFIXES)) as image:
                if image.width * image.height > max_pixels:
                    return dicom.too_large(*image.size, max_pixels)
                return _refused(image) or _header(image, digest, start, path, whole=whole)
    except Image.DecompressionBombError:
        return f"has more pixels than max_image_pixels={max_pixels} allows"
    except OSError as error:
        return getattr(error, "strerror", None) or what_it_is(start)
    # Decoders raise many kinds of errors for damaged files.
    except Exception:
        return what_it_is(start)


def _is_dicom(start: bytes, path: str) -> bool:
    """Whether a file is a DICOM file by its first bytes; old ones begin with any bytes."""
    known = any(start[place:].startswith(magic) for place, magic, _ in image_headers.OTHERS)
    other = known or start.startswith(_STARTS) or not start
    return dicom.has_preamble(start) or (path.lower().endswith(_DICOM) and not other)


def _dicom_header(path: str, digest: str, max_pixels: int, *, windows: bool) -> Header | str:
    found = dicom.read(path, max_pixels, windows=windows)
    if isinstance(found, str):
        return found
    height, width, *channels = found.pixels.shape
    mode = "RGB" if channels else "I;16" if found.is_deep else "L"
    return Header(
        digest,
        (height, width),
        dicom.FORMAT,
        mode,
        found.is_deep,
        window=found.window,
        patient=found.patient,
    )


def _header(image, digest: str, start: bytes, path: str, *, whole: bool) -> Header:
    """The header of an opened image."""
    # Pillow takes photos with a preview for a format of its own.
    kind = "JPEG" if image.format == "MPO" else image.format
    (width, height), mode = image.size, image.mode
    # A TIFF image has its upright size from the start, and loses the orientation on loading.
    noted = image.getexif().get(image_headers.ORIENTATION, 1)
    number = noted if noted in range(2, 9) else 1
    if kind in _TENSORFLOW and (number > 1 or "exif" in image.info):
        # What exported models find too.
        number = int(_orientation()(pathlib.Path(path).read_bytes()))
    if number > 4 and kind != "TIFF":
        width, height = height, width
    has_alpha = image.has_transparency_data
    if whole and kind in _TENSORFLOW:
        tf.io.decode_image(pathlib.Path(path).read_bytes(), 3)
    if has_alpha or kind not in _TENSORFLOW:
        image.load()
    return Header(
        f"{digest} {number}" if number > 1 else digest,
        (height, width),
        kind,
        mode,
        mode in _DEEP or (kind == "PNG" and start[image_headers.BIT_DEPTH] == 16),
        number > 1,
        noted in range(2, 9) and number == 1,
        has_alpha and image.convert("RGBA").getchannel("A").getextrema()[0] < 255,
        image.format != "MPO" and getattr(image, "n_frames", 1) > 1,
    )


@functools.cache
def _orientation() -> Callable[[bytes], Any]:
    return tf.function(image_headers.orientation, input_signature=[tf.TensorSpec([], tf.string)])


def _refused(image) -> str | None:
    """Why an image that Pillow opens would not be read with its values; None if it is."""
    if image.format == "PNG":
        # TensorFlow reads all of them.
        return None
    bits = getattr(image, "tag_v2", {}).get(_BITS, (8,))
    if image.mode not in _MODES or (max(bits) > 8 and image.mode not in _DEEP):
        return (
            f"its pixels are of the kind {image.mode} with {'/'.join(map(str, bits))} bits, which "
            "is not read; convert it to PNG of 8 or 16 bits"
        )
    return None


def dicom_pixels(path: str, *, windows: bool) -> dicom.DicomImage:
    """The image of a DICOM file, of which `look_at` has made a header; it must not have changed."""
    found = dicom.read(path, sys.maxsize, windows=windows)
    if isinstance(found, str):
        raise DataError(f"{path}: {found}")
    return found


def as_png(path: str, channels: int, *, is_dicom: bool = False) -> bytes:
    """An image file as a PNG file: its first frame, upright, grey or in color.

    Args:
        path: the file, of which `look_at` has made a header.
        channels: 1 for grey, as Pillow computes it, or 3 for color. Transparency is dropped. Grey
            images of 16 bits keep their values.
        is_dicom: whether it is a DICOM file, with a window or in color.
    """
    from PIL import Image

    image = Image.fromarray(dicom_pixels(path, windows=True).pixels) if is_dicom else _upright(path)
    if image.mode not in _DEEP:
        image = image.convert("L" if channels == 1 else "RGB")
    content = io.BytesIO()
    image.save(content, "PNG", compress_level=1)
    return content.getvalue()


def _upright(path: str):
    """The first frame of an image file as it is held; of 16 bits, 0 is black."""
    from PIL import Image, ImageOps

    with (
        warnings.catch_warnings(action="ignore"),
        # Given a name, Pillow maps the file into memory, and misreads TIFF images that are turned.
        files.open_regular(path) as file,
        Image.open(file, formats=tuple(_SUFFIXES)) as image,
    ):
        is_negative = getattr(image, "tag_v2", {}).get(_PHOTOMETRIC) == _WHITE_IS_ZERO
        upright = ImageOps.exif_transpose(image)
        if upright.mode in _DEEP:
            values = np.asarray(upright).astype(np.uint16)
            # Pillow inverts such images only if they have 8 bits.
            return Image.fromarray(2**16 - 1 - values if is_negative else values)
        return upright.convert({"RGBa": "RGBA", "La": "LA"}.get(upright.mode, upright.mode))


def what_it_is(start: bytes) -> str:
    """What a file is that cannot be read, by its first bytes."""
    if not start:
        return "the file is empty"
    for place, magic, what in image_headers.OTHERS:
        if start[place:].startswith(magic):
            if what in ("a WebP image", "a GIF image", "a TIFF image"):
                return f"is {what} that is broken"
            if what.startswith("a pointer of Git LFS"):
                return f"is {what}; get it by git lfs pull"
            return f"is {what}, not {FORMATS}; convert it"
    if start.lstrip()[:20].lower().startswith((b"<!doctype", b"<html", b"<?xml", b"<svg")):
        return f"is a web page or XML, not {FORMATS}; download the image again"
    if start.startswith(_STARTS):
        return "is broken: not a whole image"
    return f"not a {FORMATS} image"
