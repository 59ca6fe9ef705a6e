"""The tables of cases of data in docs/quality.md are what the tests find."""

import numpy as np
import pydicom
import pytest
from PIL import Image, ImageOps

from tests import case_tables
from tests.data import image_cases as cases
from tests.data import own_cases
from tests.data.dicom_cases import dicom, scan, window_of
from tests.data.image_cases import HEIGHT, content, many, photos, picture
from tff_pcdd import data
from tff_pcdd.data import DataError

_MIXED = [
    (".jpg", content(picture(k), kind, **({"lossless": True} if kind == "WEBP" else {})))
    for k, kind in enumerate(("WEBP", "TIFF", "PNG", "BMP") * 3)
]
_LIKE_PILLOW, _LIKE_VIEWERS = "Pillow's values", "Pillow's values, upright"
_RANGE = "(value - smallest) · 255 / (largest - smallest)"
_DEEP = [(".tif", content(picture(k, "I;16"), "TIFF", tiffinfo={262: 0})) for k in range(12)]


def _beside(end, found):
    return [*many("PNG", ".png"), (end, found)]


_WINDOW = {"WindowCenter": 60, "WindowWidth": 700, "RescaleSlope": 2, "RescaleIntercept": -1000}
_HOUNSFIELD = {"RescaleSlope": 1, "RescaleIntercept": -1000}
_IN_WINDOW = "((value - 59.5) / 699 + 0.5) · 255"


def _scans(**options):
    return [("", dicom(scan(k, size=(HEIGHT, HEIGHT)), **options)) for k in range(12)]


# What is in the folder, its files, settings, and what is expected.
CASES = (
    ("TIFF, colors", many("TIFF", ".tif"), {}, _LIKE_PILLOW),
    ("TIFF, CMYK, read as grey", many("TIFF", ".tif", "CMYK"), {"image_channels": 1}, _LIKE_PILLOW),
    ("WebP without loss", many("WEBP", ".webp", lossless=True), {}, _LIKE_PILLOW),
    ("BMP with a palette", many("BMP", ".bmp", "P"), {}, _LIKE_PILLOW),
    ("GIF", many("GIF", ".gif", "P"), {}, _LIKE_PILLOW),
    ("PNG, grey and alpha", many("PNG", ".png", "LA"), {}, _LIKE_PILLOW),
    ("PNG with a palette", many("PNG", ".png", "P"), {}, _LIKE_PILLOW),
    ("JPEG, CMYK", many("JPEG", ".jpg", "CMYK", quality=95), {}, _LIKE_PILLOW),
    ("the same, read as grey", many("JPEG", ".jpg", "CMYK"), {"image_channels": 1}, _LIKE_PILLOW),
    ("TIFF of 16 bits", many("TIFF", ".tif", "I;16"), {}, _RANGE),
    ("the same, 0 is white", _DEEP, {}, f"{_RANGE}, inverted"),
    ("JPEG photos in all orientations", photos("JPEG", ".jpg", quality=95), {}, _LIKE_VIEWERS),
    ("PNG photos", photos("PNG", ".png"), {}, _LIKE_VIEWERS),
    ("TIFF photos, grey", photos("TIFF", ".tif", "L"), {}, _LIKE_VIEWERS),
    ("WebP, TIFF, PNG and BMP as .jpg", _MIXED, {}, "read as what they are, counted"),
    ("a GIF with three frames", _beside(".gif", cases.several_frames("GIF")), {}, "first frame"),
    ("a partly transparent PNG", _beside(".png", content(cases.glass(), "PNG")), {}, "counted"),
    ("a TIFF of 16 bits per color", _beside(".tif", cases.deep_color()), {}, "refused"),
    ("8 and 16 bits", _beside(".tif", content(picture(0, "I;16"), "TIFF")), {}, "refused"),
    ("HEIC as .jpg", _beside(".jpg", cases.HEIC), {}, "refused"),
    ("a web page as .jpg", _beside(".jpg", cases.WEB_PAGE), {}, "refused"),
    ("DICOM with windows", _scans(**_WINDOW), {}, _IN_WINDOW),
    ("the same, 0 is white", _scans(kind="MONOCHROME1", **_WINDOW), {}, f"{_IN_WINDOW}, inverted"),
    ("DICOM without windows, from -1000 on", _scans(**_HOUNSFIELD), {}, _RANGE),
    (
        "the same, with image_range=-200,300",
        _scans(**_HOUNSFIELD),
        {"image_range": "-200,300"},
        _RANGE,
    ),
    ("DICOM of 40 frames", _beside("", dicom(scan(0), NumberOfFrames=40)), {}, "refused"),
    ("DICOM with a palette", _beside("", dicom(scan(0), kind="PALETTE COLOR")), {}, "refused"),
    ("half a DICOM file", _beside("", dicom(scan(0))[:200]), {}, "refused"),
    ("half a TIFF", _beside(".tif", content(picture(0), "TIFF")[:90]), {}, "refused"),
)


def _wanted(path, shape, limits):
    """The pixels of a file as Pillow and NumPy compute them, cropped to the centre."""
    if path.read_bytes()[128:132] == b"DICM":
        found = pydicom.dcmread(path)
        values = found.pixel_array * float(found.RescaleSlope) + float(found.RescaleIntercept)
        if limits:
            wanted = np.clip((values - limits[0]) * 255 / (limits[1] - limits[0]), 0, 255)
        else:
            wanted = window_of(values, found.WindowCenter, found.WindowWidth)
        is_negative = found.PhotometricInterpretation == "MONOCHROME1"
        return (255 - wanted if is_negative else wanted).reshape(shape)
    with open(path, "rb") as file, Image.open(file) as image:
        is_negative = getattr(image, "tag_v2", {}).get(262) == 0
        upright = ImageOps.exif_transpose(image)
    if limits:
        values = np.asarray(upright).astype(float)
        low, high = limits
        wanted = ((65535 - values if is_negative else values) - low) * 255 / (high - low)
    else:
        opaque = upright.convert("L" if shape[-1] == 1 else "RGB")
        wanted = np.asarray(opaque).astype(float)
    top, left = ((have - need) // 2 for have, need in zip(wanted.shape[:2], shape[:2], strict=True))
    return wanted[top : top + shape[0], left : left + shape[1]].reshape(shape)


def _got(root, files, options):
    """What is read from a folder, in words."""
    cases.folder(root, files)
    try:
        made = data.from_folder(root, image_size=HEIGHT, **options)
    except DataError as error:
        reason = str(error).replace(f"{root}: ", "").removeprefix("a/x/12")
        return f"refused: {reason.partition(': ')[2] or reason}".partition("; skip_broken")[0]
    spec = made.input_spec
    worst = max(
        np.abs(x - _wanted(root / name, spec.shape, spec.pixel_range)).max()
        for part in (made.train, made.test)
        for name, x in zip(part.ids, part.x, strict=True)
    )
    # Decoders of JPEG differ, and values between two levels are rounded.
    bound = next(bound for bound in (0, 0.5, 8, 255) if worst <= bound + 1e-3)
    notes = [f"{number} {name.replace('_', ' ')}" for name, number in made.notes.items()]
    return "; ".join([f"differ by at most {bound:g} of 255", *notes])


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    root = tmp_path_factory.mktemp("images")
    return [
        [name, expected, _got(root / str(number), files, options)]
        for number, (name, files, options, expected) in enumerate(CASES)
    ]


def test_what_is_expected_is_found(rows):
    for name, expected, got in rows:
        assert got.startswith("refused") is (expected == "refused"), name
        is_rounded = _RANGE in expected or _IN_WINDOW in expected
        bound = 8 if name.startswith("JPEG") else 0.5 if is_rounded else 0
        if expected != "refused":
            assert float(got.split()[4]) <= bound, (name, got)
        assert ("counted" in expected or "frame" in expected) <= (";" in got), name


def test_the_page_has_the_table_of_images(rows):
    case_tables.check_page(["a folder of", "expected", "got"], rows)


@pytest.mark.parametrize("section", own_cases.SECTIONS)
def test_other_data(section, tmp_path):
    """In all forms the same comes out, up to the numbers of rows; the page shows the first."""
    rows = []
    for number, case in enumerate(own_cases.SECTIONS[section]):
        found = []
        for form in case.forms:
            folder = tmp_path / str(number) / form.replace(" ", "_")
            folder.mkdir(parents=True)
            found.append(case.outcome(form, folder))
            case_tables.check_outcome(f"{case.what}, {form}", case.expected, found[-1])
        rows.append([case.what, ", ".join(case.forms), case.expected, found[0]])
    case_tables.check_page([section.lower(), "given as", "expected", "got"], rows)
