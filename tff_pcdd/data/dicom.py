"""DICOM files of one grey or color image, by pydicom, as radiologists see them.

Stored values become those of the modality (RescaleSlope and RescaleIntercept, or a table). The
first window of the file (WindowCenter, WindowWidth) says which of them are black and white, and
MONOCHROME1 is inverted after that. Without a window, the range of all files says it.
"""

from __future__ import annotations

import dataclasses
import logging
import re
import warnings

import numpy as np

FORMAT = "DICOM"

# The bytes of the preamble, with the mark at its end.
PREAMBLE = 132

_GREY = ("MONOCHROME1", "MONOCHROME2")
_COLORS = ("RGB", "YBR_FULL", "YBR_FULL_422", "YBR_ICT", "YBR_RCT")

_CONVERT = (
    "convert it to PNG with the window that matters, for example by DCMTK's dcmj2pnm --write-png "
    "--use-window 1"
)

_BROKEN = "is a DICOM file that is broken"

# How a window maps values to shades; see C.11.2.1.2 and C.11.2.1.3 of part 3 of the standard.
_LINEAR, _EXACT, _SIGMOID = "LINEAR", "LINEAR_EXACT", "SIGMOID"


@dataclasses.dataclass(frozen=True)
class DicomImage:
    """The image of a DICOM file.

    Attributes:
        pixels: uint8 [height, width] or, of colors, [height, width, 3]; without a window, float64
            [height, width] in the units of the modality.
        window: centre, width and function of the window; None without one, and for colors.
        is_negative: whether the smallest of the values without a window is white.
        patient: the PatientID; empty if the file has none.
    """

    pixels: np.ndarray
    window: tuple[float, float, str] | None
    is_negative: bool
    patient: str

    @property
    def is_deep(self) -> bool:
        """Whether the values have no window."""
        return self.pixels.dtype != np.uint8


def read(path: str, max_pixels: int, *, windows: bool) -> DicomImage | str:
    """Reads a DICOM file: its image, or what is wrong with it.

    Args:
        path: the file.
        max_pixels: the most pixels of an image.
        windows: whether the files' windows are used; otherwise all grey images have none.
    """
    try:
        import pydicom
    except ImportError:
        return (
            "is a DICOM file; reading it needs pydicom (the extra dicom), which is not installed; "
            f"or {_CONVERT}"
        )
    # It warns of values against the standard, which occur in most files.
    logging.getLogger("pydicom").setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings(action="ignore"):
            with open(path, "rb") as file:
                is_marked = has_preamble(file.read(PREAMBLE))
            if is_marked:
                meta = pydicom.filereader.read_file_meta_info(path)
                # A few bytes may stand for any number.
                if meta.get("TransferSyntaxUID") == pydicom.uid.DeflatedExplicitVRLittleEndian:
                    return "is a deflated DICOM file; inflate it, for example by DCMTK's dcmconv"
            found = pydicom.dcmread(path, force=not is_marked)
            refusal = _refused(found, max_pixels) or (windows and _refused_window(found))
            return refusal or _image(found, windows=windows)
    # Damaged files raise errors of many kinds.
    except Exception:
        return _BROKEN


def has_preamble(start: bytes) -> bool:
    """Whether the first bytes of a file are those of a DICOM file; old ones begin otherwise."""
    return start[PREAMBLE - 4 : PREAMBLE] == b"DICM"


def too_large(width: int, height: int, max_pixels: int) -> str:
    """What is said of an image with too many pixels."""
    return f"has {width}×{height} pixels, more than max_image_pixels={max_pixels} allows"


def _refused(found, max_pixels: int) -> str | None:
    """Why an image is not read; None if it is."""
    from pydicom.pixels import get_decoder

    if not any(name in found for name in ("PixelData", "FloatPixelData", "DoubleFloatPixelData")):
        kind = str(found.get("Modality", ""))
        if not re.fullmatch("[A-Z0-9]{1,16}", kind):
            return _BROKEN
        return f"is a DICOM file without an image (modality {kind})"
    if (frames := int(found.get("NumberOfFrames") or 1)) > 1:
        return (
            f"is a DICOM file of {frames} frames (multi-frame); volumes and videos are not "
            "supported; save the frames that matter as files of their own"
        )
    if found.Rows * found.Columns > max_pixels:
        return too_large(found.Columns, found.Rows, max_pixels)
    colors, bits = str(found.PhotometricInterpretation), int(found.BitsAllocated)
    if colors not in _GREY + _COLORS or (colors in _COLORS and bits != 8):
        return f"is a DICOM file of the kind {colors!r:.40} with {bits} bits; {_CONVERT}"
    syntax = _syntax(found)
    if syntax is not None and syntax.is_compressed:
        try:
            is_read = get_decoder(syntax).is_available
        except NotImplementedError:
            is_read = False
        if not is_read:
            return (
                f"is a DICOM file compressed by {syntax.name}, which pydicom cannot decode here; "
                "decompress it, for example by DCMTK's dcmdjpeg or dcmdjpls"
            )
    return None


def _refused_window(found) -> str | None:
    """Why the window of an image is not used; None if it is, or if there is none."""
    if found.PhotometricInterpretation not in _GREY:
        return None
    try:
        window = _window(found)
    except ValueError as error:
        return f"is a DICOM file with {error}; image_range can show all files by one range"
    if window is None and "VOILUTSequence" in found:
        return (
            "is a DICOM file with a table instead of a window (VOI LUT Sequence); image_range can "
            f"show all files by one range, or {_CONVERT}"
        )
    return None


def _syntax(found):
    """How the pixels are stored; None if the file does not say so."""
    return getattr(found, "file_meta", {}).get("TransferSyntaxUID")


def _image(found, *, windows: bool) -> DicomImage:
    import pydicom
    from pydicom.pixels import apply_modality_lut, pixel_array

    if _syntax(found) is None:
        # Files without a preamble are of this kind.
        found.file_meta = pydicom.dataset.FileMetaDataset()
        found.file_meta.TransferSyntaxUID = pydicom.uid.ImplicitVRLittleEndian
    stored = pixel_array(found)
    patient = str(found.get("PatientID") or "")
    if found.PhotometricInterpretation not in _GREY:
        return DicomImage(stored, None, False, patient)
    values = apply_modality_lut(stored, found).astype(np.float64)
    if not np.isfinite(values).all():
        raise ValueError("values that are not finite")
    is_negative = found.PhotometricInterpretation == "MONOCHROME1"
    is_padding = _padding(found, stored)
    if is_padding.any() and not is_padding.all():
        # It is black, and not a part of the range.
        image = values[~is_padding]
        values[is_padding] = image.max() if is_negative else image.min()
    window = _window(found) if windows else None
    if window is None:
        return DicomImage(values, None, is_negative, patient)
    shades = np.round(255 * _shown(values, *window)).astype(np.uint8)
    return DicomImage(255 - shades if is_negative else shades, window, False, patient)


def _padding(found, stored: np.ndarray) -> np.ndarray:
    """Where there is no image, as PixelPaddingValue says; bool, of the shape of the image."""
    first = found.get("PixelPaddingValue")
    if first is None:
        return np.zeros(stored.shape, bool)
    last = found.get("PixelPaddingRangeLimit", first)
    return (stored >= min(first, last)) & (stored <= max(first, last))


def _window(found) -> tuple[float, float, str] | None:
    """The first window of a file; None if there is none, and ValueError if it cannot be used."""
    numbers = []
    for name in ("WindowCenter", "WindowWidth"):
        value = found.get(name)
        if value is None or value == "":
            return None
        numbers.append(float(value if isinstance(value, int | float) else next(iter(value))))
    centre, width = numbers
    function = str(found.get("VOILUTFunction") or _LINEAR)
    if function not in (_LINEAR, _EXACT, _SIGMOID):
        raise ValueError(f"a window of the kind {function!r:.40}")
    if not np.isfinite(centre) or not (width >= 1 if function == _LINEAR else width > 0):
        raise ValueError(f"a window of width {width:g} at {centre:g}")
    return centre, width, function


def _shown(values: np.ndarray, centre: float, width: float, function: str) -> np.ndarray:
    """Shades from 0 to 1."""
    if function == _SIGMOID:
        return 1 / (1 + np.exp(-4 * (values - centre) / width))
    if function == _LINEAR:
        # From the pixel value at the lower end to that at the upper end, of whole numbers.
        centre, width = centre - 0.5, width - 1
    if not width:
        return (values > centre).astype(np.float64)
    return np.clip((values - centre) / width + 0.5, 0, 1)
