"""Conversion of pixels, image files and texts to model inputs."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import tensorflow as tf

from tff_pcdd.data import InputSpec, image_headers, transforms
from tff_pcdd.data.input_spec import IMAGE, IMAGE_FILE, TEXT, VECTOR

# Texts that are too short are padded with it at the start.
_FILLER = " "

# What the stored inputs of a kind are called.
_NAMES = {IMAGE: "images", IMAGE_FILE: "images", TEXT: "ids", VECTOR: "features"}


def raw_spec(spec: InputSpec, batch: int | None = None) -> tf.TensorSpec:
    """Shape, type and name (`images`, `ids` or `features`) of a batch of stored inputs.

    For image files, these are the decoded and cropped images.
    """
    dtype = "uint8" if spec.dtype == "string" else spec.dtype
    return tf.TensorSpec([batch, *spec.shape], dtype, name=_NAMES[spec.kind])


def checked(stored: tf.Tensor, spec: InputSpec) -> tf.Tensor:
    """A batch of stored inputs, if it is one.

    What has another shape would be broadcast, such as a grey image to a model of color images, or
    end the process in the middle of a graph.

    Args:
        stored: what a caller of an exported model passes.
        spec: specification of the stored inputs.

    Returns:
        The same, with the shape and the values checked when the graph runs.
    """
    raw = raw_spec(spec)
    stored = tf.ensure_shape(stored, raw.shape, name=f"{raw.name}_of_shape")
    if raw.dtype.is_floating:
        stored = tf.debugging.check_numerics(stored, f"{raw.name}: a value is NaN or infinite;")
    return stored


def from_image_files(contents: tf.Tensor, spec: InputSpec) -> tf.Tensor:
    """Decodes image files into model inputs.

    White is 255 in a file, but 1/`spec.scale` in the stored images (16 for digits), so the pixels
    are rescaled if necessary. Photos are turned upright, as their EXIF orientation says.

    Args:
        contents: contents of the files, strings [batch]: JPEG, PNG or BMP. Other files are refused
            when the graph runs.
        spec: specification of the stored images; files of another size are resized and cropped to
            the centre.

    Returns:
        float32 [batch, *spec.shape].
    """
    upright = dataclasses.replace(spec, upright=True)

    def decoded(file):
        reason = image_headers.unreadable(file, is_deep=spec.pixel_range is not None)
        text = tf.strings.join(["image_bytes: is ", reason, "; convert it to JPEG or PNG"])
        check = tf.debugging.Assert(tf.equal(reason, ""), [text])
        with tf.control_dependencies([check] if check is not None else []):
            return transforms.decode_image(tf.identity(file), upright)

    images = tf.map_fn(
        decoded,
        contents,
        fn_output_signature=tf.TensorSpec(spec.shape, tf.uint8),
    )
    largest = 1 / spec.scale
    if not math.isclose(largest, 255):
        images = tf.cast(images, tf.float32) * (largest / 255)
    return transforms.normalize(images, spec)


def from_text(texts: tf.Tensor, spec: InputSpec) -> tf.Tensor:
    """Converts texts to the ids of their last characters.

    Args:
        texts: UTF-8 strings [batch]. The end of a longer text is used, because the model predicts
            the next character; a shorter text is padded with spaces at the start.
        spec: specification of the stored texts.

    Returns:
        int32 ids [batch, length].
    """
    (length,) = spec.shape
    filled = tf.strings.join([_FILLER * length, texts])
    if spec.vocabulary is None:
        raise ValueError("the specification of text has no vocabulary")
    codes = tf.strings.unicode_decode(filled, "UTF-8")[:, -length:].to_tensor(shape=[None, length])
    ids = _ids(spec.vocabulary)
    return tf.gather(tf.constant(ids), tf.minimum(codes, len(ids) - 1))


def _ids(vocabulary: str) -> np.ndarray:
    """Id of every code point, int32; the last entry is for all above those of the vocabulary."""
    codes = [ord(character) for character in vocabulary]
    ids = np.full(max(codes) + 2, len(vocabulary), np.int32)
    ids[codes] = np.arange(len(vocabulary))
    return ids
