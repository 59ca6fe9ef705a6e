"""From what users have to what a model takes: pixels, image files, text."""

from __future__ import annotations

import math

import numpy as np
import tensorflow as tf

from tff_pcdd.data import InputSpec, preprocessing
from tff_pcdd.data.federation import TEXT

# What stands before a text that is shorter than the model's.
_FILLER = " "


def raw_spec(spec: InputSpec, batch: int | None = None) -> tf.TensorSpec:
    """A batch of inputs as they are stored: `images` (of image files, decoded and cut) or `ids`."""
    dtype = "uint8" if spec.dtype == "string" else spec.dtype
    return tf.TensorSpec([batch, *spec.shape], dtype, name="ids" if spec.kind == TEXT else "images")


def from_image_files(contents: tf.Tensor, spec: InputSpec) -> tf.Tensor:
    """Decodes image files into model inputs.

    Black is 0 and white is 255 in a file, whatever the largest value of stored pixels is: digits
    have 16, which `spec.scale` tells.

    Args:
        contents: the files' bytes, strings [batch]: JPEG, PNG, GIF or BMP.
        spec: of the stored images; files of another size are scaled and cut to the middle.

    Returns:
        float32 [batch, *spec.shape].
    """
    images = tf.map_fn(
        lambda file: preprocessing.decode_image(file, spec),
        contents,
        fn_output_signature=tf.TensorSpec(spec.shape, tf.uint8),
    )
    largest = 1 / spec.scale
    if not math.isclose(largest, 255):
        images = tf.cast(images, tf.float32) * (largest / 255)
    return preprocessing.normalize(images, spec)


def from_text(texts: tf.Tensor, spec: InputSpec) -> tf.Tensor:
    """Turns texts into the ids of their last characters.

    Args:
        texts: UTF-8 strings [batch]. Of a longer one the end is taken, for what comes next is
            asked; a shorter one is filled up with blanks in front.
        spec: of the stored texts.

    Returns:
        int32 ids [batch, length].
    """
    (length,) = spec.shape
    filled = tf.strings.join([_FILLER * length, texts])
    codes = tf.strings.unicode_decode(filled, "UTF-8")[:, -length:].to_tensor(shape=[None, length])
    return tf.gather(tf.constant(_ids(spec)), tf.minimum(codes, _last_code(spec) + 1))


def _last_code(spec: InputSpec) -> int:
    return max(map(ord, spec.vocabulary))


def _ids(spec: InputSpec) -> np.ndarray:
    """The id of every code point up to one beyond the last of the vocabulary, int32."""
    ids = np.full(_last_code(spec) + 2, len(spec.vocabulary), np.int32)
    ids[[ord(character) for character in spec.vocabulary]] = np.arange(len(spec.vocabulary))
    return ids
