"""Conversion of texts and image files to model inputs."""

import dataclasses
import io
import json

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from tff_pcdd import data
from tff_pcdd.data import DataError, encoding
from tff_pcdd.export import inputs

TEXT = data.InputSpec("text", (5,), "uint8", vocabulary="\n abé")
COLOR = data.InputSpec("image", (4, 6, 3), scale=1 / 255, mean=(0.5, 0.4, 0.3), std=(0.2, 0.3, 0.4))


def ids(text):
    """Indices in the vocabulary; unknown characters have the index after the last one."""
    return [("\n abé".index(c) if c in "\n abé" else 5) for c in text]


def test_text():
    """Texts of the right length, too long, too short, and with unknown characters."""
    texts = ["ab\nba", "bbbbbbaé a", "ab", "", "azZ€\U0001f600"]
    expected = ["ab\nba", "baé a", "   ab", "     ", "azZ€\U0001f600"]
    result = inputs.from_text(tf.constant(texts), TEXT)
    assert result.dtype == tf.int32
    np.testing.assert_array_equal(result, [ids(text) for text in expected])


def test_other_characters_before_short_texts():
    spec = dataclasses.replace(TEXT, filler="\n")
    result = inputs.from_text(tf.constant(["ab", "", "abbaab"]), spec)
    np.testing.assert_array_equal(result, [ids(text) for text in ("\n\n\nab", "\n" * 5, "bbaab")])
    for wrong in ("", "ab"):
        with pytest.raises(DataError, match=f"filler='{wrong}': must be one character"):
            dataclasses.replace(TEXT, filler=wrong)


def test_tweets_are_read_as_in_training(tmp_path):
    tweets = ["so good!", "a" * 150 + "end", "é\n\U0001f600"]
    rows = [["1", "date", "NO_QUERY", "ann", tweet] for tweet in tweets]
    users = {"ann": {"x": rows, "y": [1, 0, 1]}}
    content = {"users": ["ann"], "num_samples": [3], "user_data": users}
    for part in ("train", "test"):
        (tmp_path / part).mkdir()
        (tmp_path / part / "a.json").write_text(json.dumps(content))
    made = data.load_federation("sent140", "natural", data_dir=str(tmp_path))
    result = inputs.from_text(tf.constant(tweets), made.input_spec)
    np.testing.assert_array_equal(result, made.test.x)


def test_image_files():
    """Files of the right size in lossless formats are decoded exactly."""
    pixels = np.random.default_rng(0).integers(0, 256, (2, 4, 6, 3)).astype(np.uint8)
    files = [tf.io.encode_png(pixels[0]).numpy(), _bmp(pixels[1])]
    result = inputs.from_image_files(tf.constant(files), COLOR)
    expected = (pixels / 255 - COLOR.mean) / COLOR.std
    np.testing.assert_allclose(result, expected, atol=1e-5)


def _content(image, format):
    file = io.BytesIO()
    image.save(file, format)
    return file.getvalue()


_PICTURE = Image.fromarray(np.arange(72, dtype=np.uint8).reshape(4, 6, 3))


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (_content(_PICTURE, "WEBP"), "image_bytes: is a WebP image; convert it to JPEG or PNG"),
        (_content(_PICTURE, "TIFF"), "is a TIFF image"),
        (_content(_PICTURE, "GIF"), "is a GIF image"),
        (_content(_PICTURE.quantize(9), "BMP"), "is a BMP image with a palette"),
        (bytes(128) + b"DICM" + bytes(9), "is a DICOM file"),
        (b"\0\0\0\x18ftypheic" + bytes(99), "is an HEIC image"),
        (
            _content(Image.fromarray(np.zeros((4, 6), np.uint16)), "PNG"),
            "is a PNG image of 16 bits, while the model has seen 8",
        ),
        (b"GIF", "not a JPEG, PNG or BMP image of at most"),
        (b"", "not a JPEG, PNG or BMP image of at most"),
    ],
)
def test_other_files_are_refused_by_what_they_are(content, reason):
    good = _content(_PICTURE, "PNG")
    with pytest.raises(tf.errors.InvalidArgumentError, match=reason):
        inputs.from_image_files(tf.constant([good, content]), COLOR)


def test_grey_files_for_pixels_up_to_16():
    pixels = np.array([[0, 51], [102, 255]], np.uint8)[None, :, :, None]
    spec = data.InputSpec("image", (2, 2, 1), scale=1 / 16)
    result = inputs.from_image_files(tf.io.encode_png(pixels[0])[None], spec)
    np.testing.assert_allclose(result, pixels / 255, atol=1e-6)


def test_a_larger_file_is_resized_and_cropped_to_the_centre():
    """The file has three stripes of twice the input size; only the middle one remains."""
    stripes = np.repeat(np.array([0, 200, 50], np.uint8), 12)
    picture = np.broadcast_to(stripes[None, :, None], (8, 36, 3))
    result = inputs.from_image_files(tf.io.encode_png(picture)[None], COLOR)
    assert result.shape == (1, 4, 6, 3)
    expected = (np.full((4, 4, 3), 200 / 255) - COLOR.mean) / COLOR.std
    np.testing.assert_allclose(result[0, :, 1:-1], expected, atol=0.02)


def _bmp(pixels):
    """An uncompressed 24-bit Windows bitmap: rows from bottom to top, padded to 4 bytes."""
    height, width, _ = pixels.shape
    padding = bytes(-3 * width % 4)
    rows = b"".join(row[:, ::-1].tobytes() + padding for row in pixels[::-1])
    numbers = [40, width, height, 1 | 24 << 16, 0, len(rows), 0, 0, 0, 0]
    header = b"".join(number.to_bytes(4, "little") for number in [54 + len(rows), 0, 54, *numbers])
    return b"BM" + header + rows


def test_numbers_of_float64_are_missing_if_they_equal_a_marker_in_float32():
    column = encoding.Column("time", fill=1e9, has_indicator=True, offset=1e9, missing=("9.9",))
    values = tf.constant([float(np.float32(9.9)), 9.9, 1e9 + 3], tf.float64)
    numbers, is_missing = inputs.encoded(values, column)
    assert numbers.numpy().ravel().tolist() == [0, 0, 3]
    assert is_missing.numpy().ravel().tolist() == [1, 1, 0]
