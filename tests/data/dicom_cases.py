"""DICOM files that pydicom writes, for the tests of image files of your own."""

import io

import numpy as np
import pydicom
from pydicom.dataset import FileDataset, FileMetaDataset
from pydicom.uid import CTImageStorage, ExplicitVRLittleEndian, generate_uid


def dicom(pixels, *, kind="MONOCHROME2", bits=None, preamble=True, syntax=None, **elements):
    """The contents of a file.

    Args:
        pixels: whole numbers, [height, width] or [height, width, 3].
        kind: the photometric interpretation.
        bits: bits that are stored, of those of the array's type by default.
        preamble: whether the file begins as those since 1993.
        syntax: the transfer syntax, little endian by default.
        **elements: further elements, such as WindowCenter; None leaves one out.
    """
    meta = FileMetaDataset()
    meta.MediaStorageSOPClassUID, meta.MediaStorageSOPInstanceUID = CTImageStorage, generate_uid()
    is_packed = syntax == pydicom.uid.RLELossless
    meta.TransferSyntaxUID = (
        ExplicitVRLittleEndian if is_packed else syntax or ExplicitVRLittleEndian
    )
    if not preamble:
        meta.TransferSyntaxUID = pydicom.uid.ImplicitVRLittleEndian
    found = FileDataset("", {}, file_meta=meta, preamble=bytes(128))
    found.SOPClassUID, found.SOPInstanceUID = CTImageStorage, meta.MediaStorageSOPInstanceUID
    found.Modality, found.PatientID = "CT", "anonymous"
    found.Rows, found.Columns = pixels.shape[:2]
    found.SamplesPerPixel = 1 if pixels.ndim == 2 else pixels.shape[2]
    if pixels.ndim == 3:
        found.PlanarConfiguration = 0
    found.PhotometricInterpretation = kind
    found.BitsAllocated = 8 * pixels.dtype.itemsize
    found.BitsStored = bits or found.BitsAllocated
    found.HighBit = found.BitsStored - 1
    found.PixelRepresentation = int(pixels.dtype.kind == "i")
    found.PixelData = np.ascontiguousarray(pixels).tobytes()
    for name, value in elements.items():
        if value is None:
            delattr(found, name)
        else:
            setattr(found, name, value)
    if is_packed:
        found.compress(pydicom.uid.RLELossless)
    file = io.BytesIO()
    if preamble:
        found.save_as(file, enforce_file_format=True)
    else:
        del found.file_meta
        found.preamble = None
        found.save_as(file, implicit_vr=True, little_endian=True)
    return file.getvalue()


def scan(number, dtype=np.uint16, low=0, high=4096, size=(8, 10)):
    """Noise in the values of a modality."""
    return np.random.default_rng(number).integers(low, high, size).astype(dtype)


def window_of(values, centre, width):
    """What the standard says of a window, C.11.2.1.2.1, from 0 to 255."""
    shades = ((values - (centre - 0.5)) / (width - 1) + 0.5) * 255
    shades[values <= centre - 0.5 - (width - 1) / 2] = 0
    shades[values > centre - 0.5 + (width - 1) / 2] = 255
    return shades
