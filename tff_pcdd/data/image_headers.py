"""What the header of an image file states: its size, its kind, how the camera was held.

All of it in TensorFlow operations, so that training, evaluation and exported models read alike. A
file of a few kilobytes can hold an image of billions of pixels, so the size is checked before
anything is decoded. GIF files are refused: each of their frames has a size of its own, which only
decoding them would show.
"""

from __future__ import annotations

from etils import epy

with epy.lazy_imports():
    import tensorflow as tf

_PNG = (0x89, *b"PNG\r\n\x1a\n")
_JPEG = (0xFF, 0xD8, 0xFF)
_BMP = tuple(b"BM")

# The byte of a PNG that states the bits of a channel.
BIT_DEPTH = 24

# Headers of PNG and BMP state the size within this number of bytes.
_LENGTH = 26

# How files of other kinds begin, and where; their names are often those of PNG and JPEG images.
OTHERS = (
    (8, b"WEBP", "a WebP image"),
    (4, b"ftyphe", "an HEIC image"),
    (4, b"ftypmif", "an HEIF image"),
    (4, b"ftypavif", "an AVIF image"),
    (0, b"GIF8", "a GIF image"),
    (0, b"II*\0", "a TIFF image"),
    (0, b"MM\0*", "a TIFF image"),
    (0, b"\0\0\0\x0cjP  ", "a JPEG 2000 image"),
    (0, b"8BPS", "a Photoshop document"),
    (128, b"DICM", "a DICOM file"),
    (0, b"%PDF", "a PDF document"),
    (0, b"PK\x03\x04", "a zip archive"),
    (0, b"version https://git-lfs", "a pointer of Git LFS, without the image"),
)

# The tag of EXIF that says how a camera was held, and the types of numbers in EXIF.
ORIENTATION = 0x0112
_BYTE, _LONG = 1, 4

# Headers of BMP: where a palette may end.
_PALETTE = 14 + 124 + 1024


def image_size(contents: tf.Tensor) -> tf.Tensor:
    """The height and width of an image from the header of a JPEG, PNG or BMP file, int64 [2].

    They are zeros for other bytes.

    Raises:
        tf.errors.InvalidArgumentError: at run time, if the bytes start like a JPEG file and have no
            valid header.
    """
    filled = tf.strings.join([tf.strings.substr(contents, 0, _LENGTH), "\0" * _LENGTH])
    start = tf.cast(tf.io.decode_raw(filled, tf.uint8), tf.int64)
    is_jpeg = _starts_with(start, _JPEG)
    # `tf.cond`, because the operation fails on other files.
    jpeg = tf.cond(
        is_jpeg,
        lambda: tf.cast(tf.image.extract_jpeg_shape(contents)[:2], tf.int64),
        lambda: tf.zeros([2], tf.int64),
    )
    bmp = _number(start, tf.constant([22, 18], tf.int64), 4, big=False)
    png = _number(start, tf.constant([20, 16], tf.int64), 4, big=True)
    # The height of a BMP file is negative if its rows are stored from top to bottom.
    bmp = tf.where(bmp < 2**31, bmp, 2**32 - bmp)
    size = tf.where(_starts_with(start, _BMP), bmp, jpeg)
    return tf.where(_starts_with(start, _PNG), png, size)


def within(contents: tf.Tensor, max_pixels: int) -> tf.Tensor:
    """Whether an image file states a size of 1 to `max_pixels` pixels; a boolean scalar."""
    height, width = tf.unstack(image_size(contents))
    # Division, because the product of two sizes from a header may exceed int64.
    return (height > 0) & (width > 0) & (height <= max_pixels // tf.maximum(width, 1))


def _starts_with(start: tf.Tensor, signature: tuple[int, ...]) -> tf.Tensor:
    return tf.reduce_all(tf.equal(start[: len(signature)], tf.constant(signature, tf.int64)))


def unreadable(contents: tf.Tensor, *, is_deep: bool) -> tf.Tensor:
    """Why TensorFlow cannot read an image file, or would read other pixels than viewers show.

    Args:
        contents: bytes of a file, a string scalar.
        is_deep: whether PNGs of 16 bits are expected.

    Returns:
        A phrase such as "a WebP image", a string scalar; empty if the file may be read.
    """
    filled = tf.strings.join([tf.strings.substr(contents, 0, _PALETTE), "\0" * _PALETTE])
    reason = tf.constant("")
    for place, magic, what in OTHERS:
        there = tf.equal(tf.strings.substr(filled, place, len(magic)), magic)
        reason = tf.where(there, what, reason)
    start = tf.cast(tf.io.decode_raw(filled, tf.uint8), tf.int64)
    if not is_deep:
        deep = _starts_with(start, _PNG) & tf.equal(start[BIT_DEPTH], 16)
        reason = tf.where(deep, "a PNG image of 16 bits, while the model has seen 8", reason)
    odd = _starts_with(start, _BMP) & ~_is_plain_bmp(start)
    return tf.where(odd, "a BMP image with a palette, compressed, or not of 24 bits", reason)


def _is_plain_bmp(start: tf.Tensor) -> tf.Tensor:
    """Whether the bytes of a BMP file are colors of 24 bits, or 8 bits that are shades of grey.

    TensorFlow would take the indices of any other palette for shades.
    """
    bits, compression = start[28] + 256 * start[29], tf.reduce_sum(start[30:34])
    palette = tf.minimum(14 + start[14] + 256 * start[15], 14 + 124)
    end = tf.clip_by_value(start[10] + 256 * start[11], palette, _PALETTE)
    entries = tf.reshape(start[palette : palette + (end - palette) // 4 * 4], [-1, 4])
    shades = tf.range(tf.shape(entries, tf.int64)[0])[:, None]
    is_grey = tf.equal(bits, 8) & tf.reduce_all(tf.equal(entries[:, :3], shades))
    return tf.equal(compression, 0) & (tf.equal(bits, 24) | is_grey)


def orientation(contents: tf.Tensor) -> tf.Tensor:
    """How the camera was held: the orientation in the EXIF data of a JPEG or PNG file.

    Returns:
        int64 scalar from 1 to 8, as in EXIF; 1 for an upright image, and where there is no such
        number.
    """
    # Positions are at most `end`, and fewer bytes than these are read from there.
    spare = 16
    data = tf.io.decode_raw(tf.strings.join([contents, "\0" * spare]), tf.uint8)
    end = tf.size(data, tf.int64) - spare
    start = tf.cast(data[:8], tf.int64)
    found = tf.cond(_starts_with(start, _JPEG), lambda: _exif_in_jpeg(data, end), lambda: end)
    found = tf.cond(_starts_with(start, _PNG), lambda: _exif_in_png(data, end), lambda: found)
    return tf.cond(found < end, lambda: _orientation_at(data, found, end), _one)


def turned(image: tf.Tensor, orientation: tf.Tensor) -> tf.Tensor:
    """The pixels of an image, [height, width, channels], as viewers show it.

    They are mirrored and have exchanged axes where the function `orientation` says so.
    """

    def where(among: tuple[int, ...], change, image):
        chosen = tf.reduce_any(tf.equal(orientation, tf.constant(among, orientation.dtype)))
        return tf.cond(chosen, lambda: change(image), lambda: image)

    def exchanged(image):
        # By the places of pixels: TensorFlow prints an error about transposes that oneDNN lacks.
        height, width, channels = tf.unstack(tf.shape(image))
        places = tf.range(width)[:, None] + tf.range(height) * width
        return tf.gather(tf.reshape(image, [height * width, channels]), places)

    image = where((5, 6, 7, 8), exchanged, image)
    image = where((2, 3, 6, 7), lambda image: tf.reverse(image, [1]), image)
    return where((3, 4, 7, 8), lambda image: tf.reverse(image, [0]), image)


def _one() -> tf.Tensor:
    return tf.constant(1, tf.int64)


def _exif_in_jpeg(data: tf.Tensor, end: tf.Tensor) -> tf.Tensor:
    """The position of the EXIF data in a JPEG file; `end` for none."""

    def goes_on(at):
        is_segment = tf.equal(data[at], 0xFF) & ~tf.equal(data[at + 1], 0xDA)
        return is_segment & ~_is_exif(data, at)

    def following(at):
        length = _number(data, at + 2, 2, big=True)
        # Markers may be preceded by further bytes 0xFF.
        is_filler = tf.equal(data[at + 1], 0xFF)
        return [tf.minimum(tf.where(is_filler, at + 1, at + 2 + length), end)]

    (at,) = tf.nest.flatten(
        tf.while_loop(goes_on, following, [tf.minimum(tf.constant(2, tf.int64), end)])
    )
    return tf.where(_is_exif(data, at), tf.minimum(at + 10, end), end)


def _is_exif(data: tf.Tensor, at: tf.Tensor) -> tf.Tensor:
    starts = tf.reduce_all(tf.equal(data[at : at + 2], (0xFF, 0xE1)))
    return starts & tf.reduce_all(tf.equal(data[at + 4 : at + 10], tuple(b"Exif\0\0")))


def _exif_in_png(data: tf.Tensor, end: tf.Tensor) -> tf.Tensor:
    """The position of the EXIF data in a PNG file; `end` for none.

    Large files have thousands of chunks, so these are not followed one by one.
    """
    after = [data[place : place + end] for place in range(6)]
    is_there = tf.equal(after[4], after[5]) & (tf.equal(after[4], 73) | tf.equal(after[4], 77))
    for place, byte in enumerate(b"eXIf"):
        is_there &= tf.equal(after[place], byte)
    return tf.concat([tf.where(is_there)[:, 0] + 4, [end]], 0)[0]


def _orientation_at(data: tf.Tensor, start: tf.Tensor, end: tf.Tensor) -> tf.Tensor:
    """The orientation in EXIF data, which have the form of a TIFF file, from `start`."""
    big = tf.reduce_all(tf.equal(data[start : start + 4], tuple(b"MM\0*")))
    little = tf.reduce_all(tf.equal(data[start : start + 4], tuple(b"II*\0")))
    table = tf.minimum(start + _number(data, start + 4, 4, big), end)
    count = tf.minimum(_number(data, table, 2, big), (end - table) // 12)
    entries = table + 2 + 12 * tf.range(count)
    tags, types = (_number(data, entries + place, 2, big) for place in (0, 2))
    # A number that takes less than its four bytes is in the first of them.
    sizes = {_BYTE: 1, _LONG: 4}
    values = _number(data, entries + 8, 2, big)
    for kind, size in sizes.items():
        there = _number(data, entries + 8, size, big)
        values = tf.where(tf.equal(types, kind), there, values)
    found = tf.boolean_mask(values, tf.equal(tags, ORIENTATION))
    value = tf.concat([[_one()], found], 0)[-1]
    return tf.where((big | little) & (value >= 1) & (value <= 8), value, _one())


def _number(data: tf.Tensor, at: tf.Tensor, size: int, big: tf.Tensor | bool) -> tf.Tensor:
    """Numbers of `size` bytes at some positions, the largest digit first if `big`; int64."""
    digits = tf.cast(tf.gather(data, at[..., None] + tf.range(size, dtype=tf.int64)), tf.int64)
    powers = [256**i for i in range(size)]
    # Two constants: TensorFlow's optimizer prints an error about a reversed slice of one.
    descending, ascending = (tf.constant(each, tf.int64) for each in (powers[::-1], powers))
    return tf.reduce_sum(digits * tf.where(big, descending, ascending), axis=-1)
