"""Files of images, as people have them, for the tests of image files of your own."""

import io

import numpy as np
from PIL import Image

HEIGHT, WIDTH = 12, 16
ORIENTATION = 0x0112

HEIC = b"\0\0\0\x18ftypheic" + bytes(99)
DICOM = bytes(128) + b"DICM"
WEB_PAGE = b" <!DOCTYPE html><html>404</html>"


def smooth(number, channels=3):
    """Gradients, which lossy formats keep."""
    draw = np.random.default_rng(number)
    rows, columns = np.mgrid[:HEIGHT, :WIDTH]
    slopes = draw.uniform(2, 7, (2, channels))
    values = rows[..., None] * slopes[0] + columns[..., None] * slopes[1] + draw.uniform(0, 30)
    return values.astype(np.uint8)


def picture(number, mode="RGB"):
    """An image of a mode of Pillow."""
    if mode == "P":
        return Image.fromarray(smooth(number)).quantize(64)
    if mode == "1":
        return Image.fromarray(smooth(number)[..., 0] > 60)
    if mode == "I;16":
        return Image.fromarray(smooth(number)[..., 0].astype(np.uint16) * 9 + 700)
    channels = {"L": 1, "LA": 2, "RGB": 3, "RGBA": 4, "CMYK": 4}[mode]
    pixels = smooth(number, channels)
    return Image.fromarray(pixels[..., 0] if channels == 1 else pixels, mode)


def held(orientation):
    """EXIF data of a photo that was taken with a turned camera."""
    exif = Image.Exif()
    exif[ORIENTATION] = orientation
    return exif


def content(image, format, **options):
    """The contents of a file."""
    file = io.BytesIO()
    image.save(file, format, **options)
    return file.getvalue()


def folder(root, files):
    """Two sites and two classes of files, given by the ends of their names and their contents."""
    for number, (end, found) in enumerate(files):
        path = root / "ab"[number % 2] / "xy"[number // 2 % 2] / f"{number:02d}{end}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(found)
    return root


def many(format, end, mode="RGB", **options):
    return [(end, content(picture(number, mode), format, **options)) for number in range(12)]


def photos(format, end, mode="RGB", **options):
    """Photos in all eight orientations."""
    return [
        (end, content(picture(k, mode), format, exif=held(k % 8 + 1), **options)) for k in range(16)
    ]


def several_frames(format):
    frames = [picture(number, "P") for number in (20, 21, 22)]
    return content(frames[0], format, save_all=True, append_images=frames[1:])


def glass():
    """An image of which a corner is transparent."""
    pixels = smooth(30, 4)
    pixels[..., 3] = 255
    pixels[:3, :3, 3] = 0
    return Image.fromarray(pixels)


def deep_color():
    """A TIFF of 16 bits per color, of which Pillow reads the upper 8."""
    fields = {
        256: (3, 2), 257: (3, 2), 258: (3, 16), 259: (3, 1), 262: (3, 2), 273: (4, 8),
        277: (3, 3), 278: (3, 2), 279: (4, 24),
    }  # fmt: skip
    pixels = (np.arange(12, dtype=np.uint16) * 40 + 900).astype("<u2").tobytes()
    start = 8 + len(pixels)
    bits = (start + 2 + 12 * len(fields) + 4).to_bytes(4, "little")
    entries = b""
    for tag, (kind, value) in sorted(fields.items()):
        number, place = (3, bits) if tag == 258 else (1, value.to_bytes(4, "little"))
        entries += tag.to_bytes(2, "little") + kind.to_bytes(2, "little")
        entries += number.to_bytes(4, "little") + place
    directory = len(fields).to_bytes(2, "little") + entries + bytes(4)
    depths = (16).to_bytes(2, "little") * 3
    return b"II*\0" + start.to_bytes(4, "little") + pixels + directory + depths
