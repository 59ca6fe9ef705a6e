"""Conversion of pixels, image files, texts and the columns of tables to model inputs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
import tensorflow as tf

from tff_pcdd.data import InputSpec, encoding, image_headers, transforms
from tff_pcdd.data.input_spec import IMAGE, IMAGE_FILE, TEXT, VECTOR
from tff_pcdd.text import quoted

# The most categories that a message lists.
_SHOWN = 10

# What the stored inputs of a kind are called.
_NAMES = {IMAGE: "images", IMAGE_FILE: "images", TEXT: "ids", VECTOR: "features"}


def raw_spec(spec: InputSpec, batch: int | None = None) -> tf.TensorSpec:
    """Shape, type and name (`images`, `ids` or `features`) of a batch of inputs.

    For image files, these are the decoded and cropped images. For the columns of a table, these are
    its numbers; a category is given by its code (`encoding.Column.codes`).
    """
    dtype, shape = spec.dtype, spec.shape
    if dtype == "string":
        dtype = "uint8"
    if spec.columns is not None:
        shape = (len(spec.columns),)
        if any(column_type(column) == tf.float64 for column in spec.columns):
            dtype = "float64"
    return tf.TensorSpec([batch, *shape], dtype, name=_NAMES[spec.kind])


def column_type(column: encoding.Column) -> tf.DType:
    """The type of a column that is given by its name."""
    if column.is_text:
        return tf.string
    # float32 would round numbers before their offset is subtracted.
    return tf.float64 if column.offset else tf.float32


def raw_examples(x: np.ndarray, spec: InputSpec) -> np.ndarray:
    """Stored inputs, as they are given to an exported model."""
    if encoding.is_plain(spec.columns):
        return x
    cells = encoding.decode(x, spec.columns or ())
    return cells.astype(raw_spec(spec).dtype.as_numpy_dtype)


def model_inputs(raw: tf.Tensor, spec: InputSpec) -> tf.Tensor:
    """A batch of inputs as `raw_spec` describes, checked, and as the network takes it.

    What has another shape would be broadcast, such as a grey image to a model of color images, or
    end the process in the middle of a graph.

    Returns:
        Normalized inputs, [batch, *spec.shape], with the shape and the values of `raw` checked when
        the graph runs.
    """
    expected = raw_spec(spec)
    raw = tf.ensure_shape(raw, expected.shape, name=f"{expected.name}_of_shape")
    if not encoding.is_plain(spec.columns):
        return from_columns(tf.unstack(raw, axis=1), spec)
    if expected.dtype.is_floating:
        raw = tf.debugging.check_numerics(raw, f"{expected.name}: a value is NaN or infinite;")
    return transforms.normalize(raw, spec)


def from_columns(columns: Sequence[tf.Tensor], spec: InputSpec) -> tf.Tensor:
    """Converts the columns of a table to model inputs.

    Args:
        columns: for each column, its numbers or the codes of its categories, [batch]; NaN where a
            value is missing.
        spec: specification of the stored inputs, with columns.

    Returns:
        float32 [batch, *spec.shape]; refuses values when the graph runs.
    """
    blocks = [
        tf.debugging.check_numerics(block, _refusal(column))
        for values, column in zip(columns, spec.columns or (), strict=True)
        for block in encoded(values, column)
    ]
    return transforms.normalize(tf.concat(blocks, axis=1), spec)


def out_of_range(
    columns: Sequence[tf.Tensor],
    ranges: Mapping[str, tuple[np.float32, np.float32]],
    spec: InputSpec,
) -> tf.Tensor:
    """The columns whose numbers lie outside of what was seen in training, of each row.

    Args:
        columns: as in `from_columns`. A missing number is replaced, and lies within the range.
        ranges: from `columns.ranges`.
        spec: specification of the stored inputs, with columns.

    Returns:
        Strings [batch]: names, separated by commas, one with a comma in double quotes; empty if all
            numbers are within their ranges.
    """
    outside = []
    for values, column in zip(columns, spec.columns or (), strict=True):
        if column.name in ranges:
            (least, greatest), number = ranges[column.name], encoded(values, column)[0][:, 0]
            outside.append((number < least) | (number > greatest))
    flags = tf.stack(outside, axis=1)
    names = tf.broadcast_to([*map(quoted, ranges)], tf.shape(flags))
    return tf.strings.reduce_join(tf.ragged.boolean_mask(names, flags), axis=1, separator=", ")


def encoded(values: tf.Tensor, column: encoding.Column) -> list[tf.Tensor]:
    """The numbers of a vector that a column becomes.

    Returns:
        The number or those of the categories, NaN or infinite where a value is refused, and the
        indicator if there is one; float32 [batch, …].
    """
    # Python's numbers take the type of the tensors, also in the file of a Keras model, which does
    # not keep the type of a constant.
    values = values[:, None]
    if column.is_plain:
        # A column beside it may need the digits of float64.
        return [tf.cast(values, tf.float32)]
    is_missing = tf.not_equal(values, values)
    # As in training: a number stands for a missing one if both are equal in float32.
    for code in column.missing_codes:
        is_missing |= tf.equal(tf.cast(values, tf.float32), code)
    indicator = [tf.cast(is_missing, tf.float32)] if column.has_indicator else []
    if column.categories is not None:
        is_one = tf.equal(values, [column.codes])
        is_accepted = tf.reduce_any(is_one, axis=1, keepdims=True)
        if column.fill is not None:
            is_accepted |= is_missing
        # 0/0 is NaN. A constant NaN would be rounded in an int8 model.
        return [tf.cast(is_one, tf.float32) / tf.cast(is_accepted, tf.float32), *indicator]
    if column.fill is not None:
        values = tf.where(is_missing, tf.zeros_like(values) + column.fill, values)
    elif column.missing_codes:
        values /= tf.cast(~is_missing, values.dtype)
    return [tf.cast(values - column.offset if column.offset else values, tf.float32), *indicator]


def codes(texts: tf.Tensor, column: encoding.Column) -> tf.Tensor:
    """The codes of categories that are given by texts.

    Returns:
        float32 [batch]: NaN for a text that stands for a missing value, -1 for an unknown one.
    """
    known = [*(column.categories or ()), *column.missing]
    numbers = [*column.codes, *[np.nan] * len(column.missing)]
    matches = tf.equal(tidied(texts)[:, None], tf.constant([known]))
    found = tf.where(tf.reduce_any(matches, axis=1), tf.argmax(matches, axis=1), len(known))
    return tf.gather(tf.constant([*numbers, -1], tf.float32), found)


def tidied(texts: tf.Tensor) -> tf.Tensor:
    """Texts without blanks at their ends and with single ones inside, as names of tables are."""
    return tf.strings.strip(tf.strings.regex_replace(texts, r"\s+", " "))


def _refusal(column: encoding.Column) -> str:
    """The message about a value that is refused."""
    wrong = "NaN or infinite" if column.fill is None else "infinite"
    if column.categories is not None:
        known = ", ".join(column.categories[:_SHOWN]) + ", …" * (len(column.categories) > _SHOWN)
        wrong = f"not one of the categories {known}"
    return f"{' '.join(column.name.split())}: a value is {wrong};"


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

    def decoded(file):
        reason = image_headers.unreadable(file, is_deep=spec.pixel_range is not None)
        text = tf.strings.join(["image_bytes: is ", reason, "; convert it to JPEG or PNG"])
        check = tf.debugging.Assert(tf.equal(reason, ""), [text])
        with tf.control_dependencies([check] if check is not None else []):
            return transforms.decode_image(tf.identity(file), spec)

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
            the next character; `spec.filler` precedes a shorter text.
        spec: specification of the stored texts.

    Returns:
        int32 ids [batch, length].
    """
    (length,) = spec.shape
    filled = tf.strings.join([spec.filler * length, texts])
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
