"""The size that the header of an image file states, in TensorFlow operations.

A file of a few kilobytes can hold an image of billions of pixels, so the size is checked before
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


def image_size(contents: tf.Tensor) -> tf.Tensor:
    """Reads the height and width of an image from its header.

    Args:
        contents: bytes of a JPEG, PNG or BMP file, a string scalar.

    Returns:
        int64 [2], the height and the width; zeros for other bytes.

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
    powers = tf.constant([1, 2**8, 2**16, 2**24], tf.int64)
    # The height of a BMP file is negative if its rows are stored from top to bottom.
    bmp = [_signed(tf.reduce_sum(start[i : i + 4] * powers)) for i in (22, 18)]
    png = [tf.reduce_sum(start[i : i + 4] * powers[::-1]) for i in (20, 16)]
    size = tf.where(_starts_with(start, _BMP), tf.abs(tf.stack(bmp)), jpeg)
    return tf.where(_starts_with(start, _PNG), tf.stack(png), size)


def within(contents: tf.Tensor, max_pixels: int) -> tf.Tensor:
    """Whether an image file states a size of 1 to `max_pixels` pixels; a boolean scalar."""
    height, width = tf.unstack(image_size(contents))
    # Division, because the product of two sizes from a header may exceed int64.
    return (height > 0) & (width > 0) & (height <= max_pixels // tf.maximum(width, 1))


def _starts_with(start: tf.Tensor, signature: tuple[int, ...]) -> tf.Tensor:
    return tf.reduce_all(tf.equal(start[: len(signature)], tf.constant(signature, tf.int64)))


def _signed(value: tf.Tensor) -> tf.Tensor:
    return tf.where(value < 2**31, value, value - 2**32)
