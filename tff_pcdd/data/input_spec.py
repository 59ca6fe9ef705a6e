"""How raw inputs become model inputs, as plain data."""

from __future__ import annotations

import dataclasses
import math

from tff_pcdd.data import encoding
from tff_pcdd.errors import DataError

IMAGE, IMAGE_FILE, TEXT, VECTOR = "image", "image_file", "text", "vector"

# The most pixels of an image file, more than cameras produce; decoded they take 150 MB.
MAX_PIXELS = 50_000_000

_DTYPES = {
    IMAGE: ("uint8", "float32"),
    IMAGE_FILE: ("string",),
    TEXT: ("uint8", "int32"),
    VECTOR: ("float32",),
}

# The number of axes of one input.
_RANKS = {IMAGE: 3, IMAGE_FILE: 3, TEXT: 1, VECTOR: 1}


@dataclasses.dataclass(frozen=True)
class InputSpec:
    """How raw inputs become model inputs; see `transforms.normalize` and `transforms.augment`.

    Attributes:
        kind: IMAGE (pixels), IMAGE_FILE (a path, decoded when it is read, and turned upright as the
            EXIF orientation of photos says), TEXT (ids) or VECTOR (numbers, such as the columns of
            a table).
        shape: shape of one input, (height, width, channels), or (length,) for text and vectors.
        dtype: type of the raw inputs: "uint8" or "float32" for pixels, "uint8" or "int32" for ids,
            "float32" for vectors, "string" for paths.
        scale: factor that pixels are multiplied by first.
        mean: for each channel, or each number of a vector, the value that is subtracted after
            scaling; None for 0.
        std: likewise the value by which the difference is divided; None for 1.
        crop_padding: pixels added on every side before a random crop back to `shape`; 0 for none.
        padding_mode: "zeros" or "reflect", how the padding is filled.
        flip: whether images are mirrored at random.
        rotation: largest angle in degrees of a random rotation in either direction.
        vocabulary: for text, the character of each id; one further id stands for every other
            character.
        resize: for image files, the length in pixels to which the shorter side is scaled before the
            centre is cropped; None scales to the smallest image that covers `shape`.
        max_pixels: for image files, the most pixels that an image may have; larger ones are not
            decoded.
        pixel_range: for image files that are PNGs of 16 bits, or DICOM files without a window, the
            values that become 0 and 255; None for files of 8 bits.
        has_white: for pixels, whether 0 is black and 1/scale white, so that image files can be
            converted to them.
        columns: for vectors, the columns of the table that they were encoded from; None for vectors
            of other origin.
        filler: for text, the character before texts that are too short.

    Raises:
        DataError: if a field is out of bounds or does not fit the others.

    Example:
        >>> spec = InputSpec("image", (8, 8, 1), scale=1 / 16)
        >>> spec.raw_shape, spec.model_dtype
        ((8, 8, 1), 'float32')
    """

    kind: str
    shape: tuple[int, ...]
    dtype: str = "uint8"
    scale: float = 1.0
    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None
    crop_padding: int = 0
    padding_mode: str = "zeros"
    flip: bool = False
    rotation: float = 0.0
    vocabulary: str | None = None
    resize: int | None = None
    max_pixels: int = MAX_PIXELS
    pixel_range: tuple[float, float] | None = None
    has_white: bool = True
    columns: tuple[encoding.Column, ...] | None = None
    filler: str = " "

    def __post_init__(self) -> None:
        if self.kind not in _DTYPES:
            raise DataError(f"kind={self.kind!r}: choose one of {', '.join(_DTYPES)}")
        if self.dtype not in _DTYPES[self.kind]:
            raise DataError(
                f"dtype={self.dtype!r}: {self.kind} inputs are {' or '.join(_DTYPES[self.kind])}"
            )
        for name in ("shape", "mean", "std"):
            value = getattr(self, name)
            if value is not None:
                object.__setattr__(self, name, tuple(value))
        rank = _RANKS[self.kind]
        if len(self.shape) != rank or any(size < 1 for size in self.shape):
            raise DataError(f"shape={self.shape}: {self.kind} inputs need {rank} positive sizes")
        for name in ("mean", "std"):
            value = getattr(self, name)
            if value is not None and len(value) != self.shape[-1]:
                each = "numbers" if self.kind == VECTOR else "channels"
                raise DataError(
                    f"{name}={value}: needs one value for each of {self.shape[-1]} {each}"
                )
        if self.std is not None and min(self.std) <= 0:
            raise DataError(f"std={self.std}: must be greater than 0")
        if self.padding_mode not in ("zeros", "reflect"):
            raise DataError(f"padding_mode={self.padding_mode!r}: choose zeros or reflect")
        if self.crop_padding < 0 or self.rotation < 0:
            raise DataError(
                f"crop_padding={self.crop_padding}, rotation={self.rotation}: must not be negative"
            )
        if self.padding_mode == "reflect" and self.crop_padding >= min(self.shape[:2]):
            raise DataError(
                f"crop_padding={self.crop_padding}: can only be reflected in images with more rows "
                f"and columns, not of shape {self.shape}; augmentation=standard pads with zeros"
            )
        if self.kind == VECTOR and self.augments:
            raise DataError("vectors cannot be cropped, mirrored or rotated")
        if self.resize is not None and self.resize < max(self.shape[:2]):
            raise DataError(f"resize={self.resize}: must be at least {max(self.shape[:2])}")
        if self.max_pixels < 1:
            raise DataError(f"max_pixels={self.max_pixels}: must be at least 1")
        if self.pixel_range is not None:
            low, high = self.pixel_range
            if not -math.inf < low < high < math.inf:
                raise DataError(f"pixel_range={self.pixel_range}: must be two numbers in order")
        if self.columns is not None:
            number = len(encoding.features(self.columns))
            if self.kind != VECTOR or self.shape != (number,):
                raise DataError(f"columns: are encoded to vectors of {number} numbers")
        if self.kind == TEXT and not self.vocabulary:
            raise DataError("text inputs need a vocabulary")
        if len(self.filler) != 1:
            raise DataError(f"filler={self.filler!r:.40}: must be one character")

    @property
    def augments(self) -> bool:
        """Whether `transforms.augment` changes anything."""
        return bool(self.crop_padding or self.flip or self.rotation)

    @property
    def raw_shape(self) -> tuple[int, ...]:
        """Shape of one raw input; a path is a scalar."""
        return () if self.kind == IMAGE_FILE else self.shape

    @property
    def model_dtype(self) -> str:
        """Type of the model input."""
        return "int32" if self.kind == TEXT else "float32"

    @property
    def vocabulary_size(self) -> int | None:
        """Number of text ids, including the one for unknown characters; None for images."""
        return len(self.vocabulary) + 1 if self.vocabulary else None
