"""DICOM files: windows, inverted shades, the values of the modality, and what is refused."""

import io
import struct
import sys

import numpy as np
import pydicom
import pytest
import tensorflow as tf

from tests.data.dicom_cases import dicom, scan, window_of
from tests.data.image_cases import content, folder, many, picture
from tests.data.refusals import refuses
from tests.data.test_image_kinds import by_name
from tff_pcdd import data
from tff_pcdd.data import DataError
from tff_pcdd.data import dicom as reader
from tff_pcdd.export import inputs, model_card

N = 12


def scans(end=".dcm", **options):
    """Stored values, and files that hold them."""
    stored = [scan(number) for number in range(N)]
    return stored, [(end, dicom(pixels, **options)) for pixels in stored]


def pixels_of(root, files, **options):
    """The federation, and the pixels of its files in their order, float."""
    made = data.from_folder(folder(root, files), **options)
    found = sorted(by_name(made, root).items(), key=lambda pair: pair[0].rpartition("/")[2])
    return made, [x.astype(float) for _, x in found]


@pytest.mark.parametrize("kind", ["MONOCHROME1", "MONOCHROME2"])
@pytest.mark.parametrize(
    ("slope", "intercept", "centre", "width"),
    [(1, -1024, 40, 400), (2.5, 0, [300, 40], [900, 80]), (None, None, 1000.5, 1)],
)
def test_windows_are_those_of_the_standard(kind, slope, intercept, centre, width, tmp_path):
    elements = {"WindowCenter": centre, "WindowWidth": width}
    if slope is not None:
        elements |= {"RescaleSlope": slope, "RescaleIntercept": intercept}
    stored, files = scans(kind=kind, bits=12, **elements)
    made, found = pixels_of(tmp_path, files)
    assert made.input_spec.shape == (8, 10, 1)
    assert made.input_spec.pixel_range is None
    for values, x in zip(stored, found, strict=True):
        values = values * float(slope or 1) + float(intercept or 0)
        first = [value[0] if isinstance(value, list) else value for value in (centre, width)]
        with np.errstate(divide="ignore", invalid="ignore"):
            shades = np.round(window_of(values, *first))
        np.testing.assert_array_equal(x[..., 0], 255 - shades if kind == "MONOCHROME1" else shades)


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        ("LINEAR_EXACT", lambda values: np.clip((values - 2000) / 1500 + 0.5, 0, 1)),
        ("SIGMOID", lambda values: 1 / (1 + np.exp(-4 * (values - 2000) / 1500))),
    ],
)
def test_windows_of_other_functions(function, expected, tmp_path):
    options = {"WindowCenter": 2000, "WindowWidth": 1500, "VOILUTFunction": function}
    stored, files = scans(**options)
    _, found = pixels_of(tmp_path, files)
    for values, x in zip(stored, found, strict=True):
        np.testing.assert_array_equal(x[..., 0], np.round(255 * expected(values.astype(float))))


@pytest.mark.parametrize("kind", ["MONOCHROME1", "MONOCHROME2"])
def test_without_windows_the_range_of_all_files_counts(kind, tmp_path, warnings_again):
    """Also of values below 0, in files that say nothing of their padding, and with padding."""
    stored = [scan(number, np.int16, -900, 2000) for number in range(N)]
    stored[3][0] = -2000
    options = {"RescaleSlope": 0.5, "RescaleIntercept": -10, "kind": kind}
    padded = [dicom(x, PixelPaddingValue=-2000, **options) for x in stored]
    made, found = pixels_of(tmp_path, [(".dcm", file) for file in padded])
    values = [x * 0.5 - 10 for x in stored]
    low = min(x[x > -1010].min() for x in values)
    high = max(x.max() for x in values)
    assert made.input_spec.pixel_range == (low, high)
    assert f"the images have no window; {low:g} becomes black and {high:g} white" in (
        warnings_again.text
    )
    for number, (value, x) in enumerate(zip(values, found, strict=True)):
        wanted = np.clip((value - low) * 255 / (high - low), 0, 255)
        wanted = 255 - wanted if kind == "MONOCHROME1" else wanted
        if number == 3:
            # Padding is the darkest of the image.
            wanted[0] = wanted[1:].min()
        np.testing.assert_allclose(x[..., 0], wanted, atol=0.501)
    # Nothing that an exported model reads has such values.
    assert not made.input_spec.has_white
    card = " ".join(model_card._normalization(made.input_spec))
    assert "DICOM files without windows" in card
    assert "no signature `serving_bytes`" in card


def test_a_range_for_all_files_replaces_their_windows(tmp_path, warnings_again):
    stored = [scan(number) for number in range(N)]
    files = [
        (
            ".dcm",
            dicom(x, WindowCenter=40 * k, WindowWidth=400, RescaleSlope=1, RescaleIntercept=-9),
        )
        for k, x in enumerate(stored)
    ]
    _, own = pixels_of(tmp_path / "own", files)
    assert "12 DICOM files, such as a/x/00.dcm, are shown by 12 different windows" in (
        warnings_again.text
    )
    _, found = pixels_of(tmp_path / "one", files, image_range="-100,2000")
    for values, x, other in zip(stored, found, own, strict=True):
        wanted = np.clip((values - 9.0 + 100) * 255 / 2100, 0, 255)
        np.testing.assert_allclose(x[..., 0], wanted, atol=0.501)
        assert (x != other).any()
    mixed = [*files, (".dcm", dicom(stored[0]))]
    with pytest.raises(DataError, match=r"1 of 13 images have no window \(DICOM\), such as a/x/12"):
        pixels_of(tmp_path / "mixed", mixed)
    assert len(pixels_of(tmp_path / "mixed", mixed, image_range="0,900")[1]) == 13
    with refuses("image_range", "two whole numbers from -65535 to 65535"):
        data.from_folder(tmp_path / "one", image_range="-70000,1")


@pytest.mark.parametrize("end", ["", ".DCM", ".dicom", ".2.840.1"])
@pytest.mark.parametrize("preamble", [True, False])
def test_files_of_any_name_and_age(end, preamble, tmp_path):
    if not preamble and not end.lower().startswith(".d"):
        pytest.skip("nothing shows that such a file is DICOM")
    stored, files = scans(end, preamble=preamble, WindowCenter=2048, WindowWidth=4096)
    made, found = pixels_of(tmp_path, files)
    assert made.notes == {}
    for values, x in zip(stored, found, strict=True):
        np.testing.assert_array_equal(x[..., 0], np.round(window_of(values, 2048, 4096)))


def test_colors_compressed_files_and_other_formats_beside_them(tmp_path, warnings_again):
    colors = np.asarray(picture(3))
    shades = scan(1, np.uint8, 0, 256, colors.shape[:2])
    window = {"WindowCenter": 128, "WindowWidth": 256}
    files = [
        *many("PNG", ".png")[:10],
        (".dcm", dicom(colors, kind="RGB")),
        (".png", dicom(shades, syntax=pydicom.uid.RLELossless, **window)),
        (".dcm", content(picture(25), "PNG")),
    ]
    made, found = pixels_of(tmp_path, files)
    np.testing.assert_array_equal(found[10], colors)
    np.testing.assert_array_equal(found[11], np.repeat(shades[..., None], 3, axis=2))
    np.testing.assert_array_equal(found[12], np.asarray(picture(25)))
    assert made.notes == {"misnamed_images_read": 2}
    _, grey = pixels_of(tmp_path, files, image_channels=1)
    np.testing.assert_array_equal(grey[10][..., 0], np.asarray(picture(3).convert("L")))


def test_tables_name_dicom_files_too(tmp_path):
    stored, files = scans("", WindowCenter=2048, WindowWidth=4096)
    lines = ["id,label,site"]
    for number, (_, file) in enumerate(files):
        (tmp_path / f"{number}.dcm").write_bytes(file)
        lines.append(f"{number},{'xy'[number % 2]},{'ab'[number // 6]}")
    (tmp_path / "a.csv").write_text("\n".join(lines))
    made = data.load_federation(
        "table", "natural", data_dir=str(tmp_path / "a.csv"), path_pattern="{id}.dcm"
    )
    for part in (made.train, made.test):
        for name, x in zip(part.ids, part.x, strict=True):
            values = stored[int(name.split()[1]) - 2]
            np.testing.assert_array_equal(x[..., 0], np.round(window_of(values, 2048, 4096)))


def test_patients_in_several_parts_are_warned_of(tmp_path, warnings_again):
    """Without their ids, which nobody has to see."""
    window = {"WindowCenter": 2048, "WindowWidth": 4096}
    files = [
        (f"_{number}.dcm", dicom(scan(number), PatientID=f"secret {number // 3}", **window))
        for number in range(24)
    ]
    pixels_of(tmp_path, files)
    assert " of 8 values of PatientID have samples in the training and the test part, for" in (
        warnings_again.text
    )
    assert "secret" not in warnings_again.text
    warnings_again.clear()
    data.checks.warn_once.cache_clear()
    data.from_folder(tmp_path, group_pattern=r"[ab]/[xy]/\d")
    assert "PatientID" not in warnings_again.text


_LOSSLESS = pydicom.uid.JPEGLosslessSV1
_DEFLATED = pydicom.uid.DeflatedExplicitVRLittleEndian


@pytest.mark.parametrize(
    ("file", "reason"),
    [
        (dicom(scan(0), NumberOfFrames=3), "of 3 frames (multi-frame); volumes and videos are not"),
        (dicom(scan(0), kind="PALETTE COLOR"), "of the kind 'PALETTE COLOR' with 16 bits; convert"),
        (dicom(np.zeros((8, 10, 3), np.uint16), kind="RGB"), "of the kind 'RGB' with 16 bits; c"),
        (dicom(scan(0), PixelData=None), "is a DICOM file without an image (modality CT)"),
        (dicom(scan(0), syntax=_DEFLATED), "is a deflated DICOM file; inflate it, for example"),
        (dicom(scan(0), Rows=9000, Columns=9000), "has 9000×9000 pixels, more than max_image_p"),
        (dicom(scan(0), Rows=9), "is a DICOM file that is broken"),
        (
            dicom(scan(0), WindowCenter=1, WindowWidth=0),
            "with a window of width 0 at 1; image_range",
        ),
        (dicom(scan(0))[:300], "is a DICOM file that is broken"),
        (bytes(128) + b"DICM", "is a DICOM file that is broken"),
        (b"\x08\0\x05\0old", "is a DICOM file that is broken"),
    ],
)
def test_files_without_one_image_are_refused_by_name(file, reason, tmp_path):
    files = [*scans()[1], (".dcm", file)]
    with pytest.raises(DataError) as caught:
        pixels_of(tmp_path, files)
    assert str(caught.value).startswith("a/x/12.dcm: ")
    assert reason in str(caught.value)
    assert "\n" not in str(caught.value)
    made, _ = pixels_of(tmp_path, files, skip_broken_images=True)
    assert made.notes == {"broken_images_left_out": 1}


def test_what_needs_another_program_or_package_is_named(tmp_path, monkeypatch):
    table = pydicom.Dataset()
    table.LUTDescriptor, table.LUTData = [4, 0, 16], np.arange(4, dtype="<u2").tobytes()
    encoded = pydicom.encaps.encapsulate([b"\xff\xd8\xff\xd9"])
    lossless = dicom(scan(0))
    found = pydicom.dcmread(io.BytesIO(lossless))
    found.file_meta.TransferSyntaxUID, found.PixelData = _LOSSLESS, encoded
    found["PixelData"].is_undefined_length = True
    path = tmp_path / "x.dcm"
    found.save_as(path)
    assert "compressed by JPEG Lossless" in reader.read(str(path), 99, windows=True)
    path.write_bytes(dicom(scan(0), VOILUTSequence=[table]))
    assert "a table instead of a window (VOI LUT" in reader.read(str(path), 99, windows=True)
    np.testing.assert_array_equal(reader.read(str(path), 99, windows=False).pixels, scan(0))
    monkeypatch.setitem(sys.modules, "pydicom", None)
    reason = reader.read(str(path), 99, windows=True)
    assert reason.startswith("is a DICOM file; reading it needs pydicom (the extra dicom), which")
    assert "convert it to PNG with the window that matters" in reason


def test_damaged_files_are_refused_or_read(tmp_path):
    """Whatever bytes are damaged: one line, or an image of the stated size."""
    good = dicom(scan(0), WindowCenter=40, WindowWidth=400, RescaleSlope=2, RescaleIntercept=1)
    draw = np.random.default_rng(5)
    path = tmp_path / "x.dcm"
    for number in range(300):
        damaged = bytearray(good)
        for place in draw.integers(132, len(good) - 160, 3):
            damaged[place] = draw.integers(256)
        if number % 5 == 0:
            at = int(draw.integers(132, len(good) - 160))
            damaged[at : at + 4] = struct.pack("<I", draw.integers(2**32))
        path.write_bytes(damaged)
        found = reader.read(str(path), 10_000, windows=bool(number % 2))
        if isinstance(found, str):
            assert "\n" not in found
            assert "DICOM" in found or "max_image_pixels" in found
        else:
            assert found.pixels.shape[0] * found.pixels.shape[1] <= 10_000


def test_exported_models_refuse_them_by_name(tmp_path):
    made, _ = pixels_of(tmp_path, scans(WindowCenter=40, WindowWidth=400)[1])
    assert made.input_spec.has_white
    decode = tf.function(lambda x: inputs.from_image_files(x, made.input_spec))
    with pytest.raises(tf.errors.InvalidArgumentError, match="is a DICOM file; convert it to"):
        decode(tf.constant([dicom(scan(0))]))
    card = " ".join(model_card._normalization(made.input_spec))
    assert "DICOM" in card and "convert those to PNG with their windows" in card
