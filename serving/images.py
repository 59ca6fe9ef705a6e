"""Image files that exported models do not read, as PNG files: TIFF, WebP, BMP and GIF.

The values are those that the training has read: see tff_pcdd/data/pillow.py.
"""

from __future__ import annotations

import io

import numpy as np
from PIL import Image, ImageOps

# What is read, by the names in Pillow, and what the models read themselves: these turn photos
# upright too. Pillow takes photos with a preview for MPO.
FORMATS = ("JPEG", "PNG", "TIFF", "WEBP", "BMP", "GIF")
_OF_MODELS = ("JPEG", "MPO", "PNG")

_DEEP = ("I;16", "I;16B", "I;16L")
_MODES = ("1", "L", "LA", "La", "P", "PA", "RGB", "RGBA", "RGBa", "RGBX", "CMYK", "YCbCr")

# Tags of TIFF files: the bits of each channel, what is white, and the value by which 0 is white.
_BITS, _PHOTOMETRIC, _WHITE_IS_ZERO = 258, 262, 0

# Pillow would warn of large images itself; `Limits` counts their pixels before they are decoded.
Image.MAX_IMAGE_PIXELS = None


def what_it_is(file: bytes) -> str:
    """What a file is that is not read."""
    if file[128:132] == b"DICM":
        return "is a DICOM file, which has to be converted to PNG with its window"
    if file[4:8] == b"ftyp":
        return "is an HEIC, HEIF or AVIF image"
    return "Unknown image file format"


def as_read_by_models(file: bytes, channels: int) -> bytes:
    """An image file that models read: the file itself, or its first frame as an upright PNG.

    Raises:
        ValueError: the file is broken, or its values would be changed.
    """
    try:
        with Image.open(io.BytesIO(file), formats=FORMATS) as image:
            if image.format in _OF_MODELS and not (image.mode == "CMYK" and channels == 1):
                return file
            tags = getattr(image, "tag_v2", {})
            if image.mode in _DEEP:
                return _deep(image, is_negative=tags.get(_PHOTOMETRIC) == _WHITE_IS_ZERO)
            if image.mode in _MODES and max(tags.get(_BITS, (8,))) <= 8:
                return _shallow(image, "L" if channels == 1 else "RGB")
            kind = image.mode
    # The decoders of the formats raise exceptions of many kinds.
    except Exception:
        raise ValueError("is broken: not a whole image") from None
    raise ValueError(f"has pixels of the kind {kind} with too many bits, which is not read")


def _deep(image: Image.Image, *, is_negative: bool) -> bytes:
    """A grey image of 16 bits, with its values."""
    values = np.asarray(ImageOps.exif_transpose(image)).astype(np.uint16)
    # Pillow inverts such images only if they have 8 bits.
    return _png(Image.fromarray(2**16 - 1 - values if is_negative else values))


def _shallow(image: Image.Image, mode: str) -> bytes:
    """Any other image, without transparency."""
    upright = ImageOps.exif_transpose(image)
    opaque = {"RGBa": "RGBA", "La": "LA"}.get(upright.mode, upright.mode)
    return _png(upright.convert(opaque).convert(mode))


def _png(image: Image.Image) -> bytes:
    content = io.BytesIO()
    image.save(content, "PNG", compress_level=1)
    return content.getvalue()
