"""What FEMNIST and Shakespeare look like in LEAF's edition: arrays, classes, input specs.

LEAF: A Benchmark for Federated Settings; S. Caldas et al.; 2018. Its json files and the copies that
TFF keeps hold the same things in different wrappings.
"""

from __future__ import annotations

import string
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from tff_pcdd.data.federation import IMAGE, TEXT, ClientIndices, Examples, InputSpec
from tff_pcdd.data.sources import DatasetInfo, Source, SourceOptions, image_spec

# LEAF's alphabet; the position of a character is its id, any other one has the id after the last.
ALPHABET = "\n !\"&'(),-.0123456789:;>?ABCDEFGHIJKLMNOPQRSTUVWXYZ[]abcdefghijklmnopqrstuvwxyz}"

SEQUENCE = 80

FEMNIST = DatasetInfo("femnist", IMAGE, 62, (28, 28, 1), has_users=True, needs_data_dir=True)
SHAKESPEARE = DatasetInfo(
    "shakespeare",
    TEXT,
    len(ALPHABET),
    (SEQUENCE,),
    has_users=True,
    needs_data_dir=True,
    vocabulary=ALPHABET,
)


class Format(NamedTuple):
    """What differs between LEAF's sets.

    Attributes:
        parse: turns a user's `x` and `y` of a json file into arrays; raises ValueError with the
            reason.
        shape: of one input.
        class_names: of the largest edition.
        class_numbers: the numbers of classes of the editions, ascending.
        input_spec: of inputs of the given type.
    """

    parse: Callable
    shape: tuple[int, ...]
    class_names: tuple[str, ...]
    class_numbers: tuple[int, ...]
    input_spec: Callable[[np.dtype, SourceOptions], InputSpec]


def make_source(
    kind: Format,
    parts: Sequence[Examples],
    users: Sequence[ClientIndices],
    options: SourceOptions,
    num_classes: int | None = None,
    notes: Mapping[str, int] | None = None,
) -> Source:
    """Puts samples of users together as a source.

    Args:
        kind: the set's format.
        parts: training and test examples.
        users: which of them belong to whom.
        options: of which normalisation and augmentation are used.
        num_classes: by default that of the smallest edition that has all the labels.
        notes: see `Source`.
    """
    x_type = np.result_type(*(part.x for part in parts))
    train, test = (
        Examples(as_floats(part.x) if part.x.dtype != x_type else part.x, part.y) for part in parts
    )
    if num_classes is None:
        largest = max(int(part.y.max(initial=0)) for part in parts)
        num_classes = next(number for number in kind.class_numbers if number > largest)
    return Source(
        train=train,
        test=test,
        class_names=kind.class_names[:num_classes],
        input_spec=kind.input_spec(x_type, options),
        users=tuple(users),
        notes=dict(notes or {}),
    )


def grey_levels(pixels: np.ndarray) -> np.ndarray:
    """Pixels in [0, 1] as uint8 where all are grey levels k/255 to three decimals, else float32."""
    levels = np.round(pixels * 255)
    # Three decimals are off by 0.0005 at most, a quarter of the way to the next grey level.
    if levels.min() >= 0 and levels.max() <= 255 and np.abs(pixels - levels / 255).max() <= 5.01e-4:
        return levels.astype(np.uint8)
    return pixels.astype(np.float32)


def as_floats(levels: np.ndarray) -> np.ndarray:
    """Grey levels as the numbers that they stand for, float32."""
    return levels.astype(np.float32) / np.float32(255)


def character_ids(text: str) -> np.ndarray:
    """uint8 ids of characters."""
    codes = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), "<u4")
    return _ID_OF_CODE[np.minimum(codes, len(_ID_OF_CODE) - 1)]


# The last of 129 codes stands for everything beyond ASCII.
_ID_OF_CODE = np.full(129, len(ALPHABET), np.uint8)
_ID_OF_CODE[[ord(character) for character in ALPHABET]] = np.arange(len(ALPHABET))


def _parse_images(x, y):
    if {len(image) for image in x} != {784}:
        raise ValueError("every image needs 784 numbers")
    pixels = np.asarray(x)
    labels = np.asarray(y)
    if pixels.dtype.kind not in "if" or not np.isfinite(pixels).all():
        raise ValueError("pixels must be finite numbers")
    if labels.dtype.kind not in "if" or (labels != np.floor(labels)).any():
        raise ValueError("labels must be integers")
    return grey_levels(pixels.reshape(-1, 28, 28, 1)), labels.astype(np.int32)


def _parse_text(x, y):
    if not all(isinstance(line, str) and len(line) == SEQUENCE for line in x):
        raise ValueError(f"every input needs {SEQUENCE} characters")
    if not all(isinstance(character, str) and len(character) == 1 for character in y):
        raise ValueError("every label needs one character")
    return character_ids("".join(x)).reshape(-1, SEQUENCE), character_ids("".join(y)).astype(
        np.int32
    )


def _image_input_spec(dtype, options) -> InputSpec:
    return image_spec(FEMNIST, options, str(dtype), 1 / 255 if dtype == np.uint8 else 1.0)


def _text_input_spec(dtype, options) -> InputSpec:
    return InputSpec(TEXT, (SEQUENCE,), dtype=str(dtype), vocabulary=ALPHABET)


FORMATS = {
    "femnist": Format(
        _parse_images,
        (28, 28, 1),
        tuple(string.digits + string.ascii_uppercase + string.ascii_lowercase),
        (10, 36, 62),
        _image_input_spec,
    ),
    "shakespeare": Format(
        _parse_text,
        (SEQUENCE,),
        (*ALPHABET, "<unknown>"),
        (len(ALPHABET), len(ALPHABET) + 1),
        _text_input_spec,
    ),
}
