"""LEAF's data sets as it defines them: arrays, classes, input specs.

LEAF: A Benchmark for Federated Settings; S. Caldas et al.; 2018. LEAF's JSON files and the copies
in TFF's cache hold the same samples in different containers.
"""

from __future__ import annotations

import dataclasses
import string
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from tff_pcdd.data.checks import to_float32, to_int32
from tff_pcdd.data.federation import ClientIndices, Examples
from tff_pcdd.data.input_spec import VECTOR, InputSpec
from tff_pcdd.data.sources import DataSource, ImageSource, PooledData, TextSource

# LEAF's alphabet. The id of a character is its position; any other character has the next id.
ALPHABET = "\n !\"&'(),-.0123456789:;>?ABCDEFGHIJKLMNOPQRSTUVWXYZ[]abcdefghijklmnopqrstuvwxyz}"

# Characters in an input.
SEQUENCE = 80

# Characters of a tweet that count, numbers in an input of the synthetic data, and its most classes.
_TWEET, _NUMBERS, _CLASSES = 140, 60, 100

# The character before shorter tweets.
_FILLER = "\n"


@dataclasses.dataclass(frozen=True)
class LeafFormat(DataSource):
    """Base class of sources whose samples are in one of LEAF's formats.

    Attributes:
        input_shape: shape of one input.
        class_names: names of the classes of the largest edition.
        class_numbers: number of classes of each edition, ascending.
    """

    draws_only_users = True
    input_shape: ClassVar[tuple[int, ...]]
    class_names: ClassVar[tuple[str, ...]]
    class_numbers: ClassVar[tuple[int, ...]]

    @staticmethod
    def parse(x: Any, y: Any) -> tuple[np.ndarray, np.ndarray]:
        """Converts a user's `x` and `y` of a JSON file into arrays.

        Raises:
            ValueError: if they have another form; says why.
        """
        raise NotImplementedError

    def least_classes(self) -> int:
        return self.class_numbers[0]

    def stored_spec(self, dtype: np.dtype) -> InputSpec:
        """The input spec for raw inputs of this type."""
        raise NotImplementedError

    def pool(
        self,
        users: Sequence[str],
        parts: Sequence[tuple[Examples, Sequence[np.ndarray]]],
        num_classes: int | None = None,
        notes: Mapping[str, int] | None = None,
    ) -> PooledData:
        """Combines training and test examples with the rows of each user into pooled data.

        There are as many classes as in the smallest edition with all labels by default.
        """
        examples, rows = zip(*parts, strict=True)
        x_type = np.result_type(*(part.x for part in examples))
        train, test = (
            Examples(as_floats(part.x) if part.x.dtype != x_type else part.x, part.y)
            for part in examples
        )
        if num_classes is None:
            largest = max(int(part.y.max(initial=0)) for part in examples)
            fitting = (number for number in self.class_numbers if number > largest)
            num_classes = next(fitting, self.class_numbers[-1])
        return PooledData(
            train=train,
            test=test,
            class_names=self.class_names[:num_classes],
            input_spec=self.stored_spec(x_type),
            users=tuple(map(ClientIndices, users, *rows)),
            notes=dict(notes or {}),
        )


def grey_levels(pixels: np.ndarray) -> np.ndarray:
    """Pixels in [0, 1] as uint8 if all are grey levels k/255 to three decimals, else as float32."""
    with np.errstate(over="ignore"):  # then they are not grey levels
        levels = np.round(pixels * 255)
    # Three decimals are off by 0.0005 at most, a quarter of the distance between grey levels.
    if levels.min() >= 0 and levels.max() <= 255 and np.abs(pixels - levels / 255).max() <= 5.01e-4:
        return levels.astype(np.uint8)
    return pixels.astype(np.float32)


def as_floats(levels: np.ndarray) -> np.ndarray:
    """Grey levels 0 to 255 as float32 pixels in [0, 1]."""
    return levels.astype(np.float32) / np.float32(255)


def character_ids(text: str) -> np.ndarray:
    """The uint8 id of each character, [len(text)]."""
    codes = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), "<u4")
    return _ID_OF_CODE[np.minimum(codes, len(_ID_OF_CODE) - 1)]


# The last of 129 codes stands for everything beyond ASCII.
_ID_OF_CODE = np.full(129, len(ALPHABET), np.uint8)
_ID_OF_CODE[[ord(character) for character in ALPHABET]] = np.arange(len(ALPHABET))


def _numbers(values: Any, rank: int, reason: str) -> np.ndarray:
    array = np.asarray(values)
    if array.ndim != rank or array.dtype.kind not in "if":
        raise ValueError(reason)
    return array


def _whole_labels(y: Any) -> np.ndarray:
    labels = _numbers(y, 1, "labels must be integers")
    if (labels != np.floor(labels)).any():
        raise ValueError("labels must be integers")
    return to_int32(labels)


@dataclasses.dataclass(frozen=True)
class LeafImages(ImageSource, LeafFormat):
    """FEMNIST: images of 28 × 28 × 1, white paper is 1.0; classes 0 to 9, A to Z, a to z."""

    input_shape = (28, 28, 1)
    class_names = tuple(string.digits + string.ascii_uppercase + string.ascii_lowercase)
    class_numbers: ClassVar[tuple[int, ...]] = (10, 36, 62)

    @staticmethod
    def parse(x: Any, y: Any) -> tuple[np.ndarray, np.ndarray]:
        if {len(image) for image in x} != {784}:
            raise ValueError("every image needs 784 numbers")
        pixels = _numbers(x, 2, "pixels must be finite numbers, 784 in each image")
        labels = _whole_labels(y)
        to_float32(pixels)
        return grey_levels(pixels.reshape(-1, 28, 28, 1)), labels

    def stored_spec(self, dtype: np.dtype) -> InputSpec:
        return self.image_spec(str(dtype), 1 / 255 if dtype == np.uint8 else 1.0)


@dataclasses.dataclass(frozen=True)
class LeafText(TextSource, LeafFormat):
    """Shakespeare: ids of 80 characters; the label is the id of the next character."""

    input_shape = (SEQUENCE,)
    class_names: ClassVar[tuple[str, ...]] = (*ALPHABET, "<unknown>")
    class_numbers: ClassVar[tuple[int, ...]] = (len(ALPHABET), len(ALPHABET) + 1)

    @staticmethod
    def parse(x: Any, y: Any) -> tuple[np.ndarray, np.ndarray]:
        if not all(isinstance(line, str) and len(line) == SEQUENCE for line in x):
            raise ValueError(f"every input needs {SEQUENCE} characters")
        if not all(isinstance(character, str) and len(character) == 1 for character in y):
            raise ValueError("every label needs one character")
        inputs = character_ids("".join(x)).reshape(-1, SEQUENCE)
        return inputs, character_ids("".join(y)).astype(np.int32)

    def stored_spec(self, dtype: np.dtype) -> InputSpec:
        return self.text_spec(str(dtype))


@dataclasses.dataclass(frozen=True)
class LeafTweets(LeafText):
    """Sent140: ids of the characters of a tweet; whether it is positive."""

    input_shape = (_TWEET,)
    class_names = ("negative", "positive")
    class_numbers = (2,)

    @staticmethod
    def parse(x: Any, y: Any) -> tuple[np.ndarray, np.ndarray]:
        if not all(isinstance(row, list) and len(row) > 4 and isinstance(row[4], str) for row in x):
            raise ValueError("every input needs the columns of a tweet, whose fifth is its text")
        lines = [row[4][-_TWEET:].rjust(_TWEET, _FILLER) for row in x]
        inputs = character_ids("".join(lines)).reshape(-1, _TWEET)
        return inputs, _whole_labels([int(label) if label in ("0", "1") else label for label in y])

    def text_spec(self, dtype: str = "uint8") -> InputSpec:
        return dataclasses.replace(super().text_spec(dtype), filler=_FILLER)


@dataclasses.dataclass(frozen=True)
class LeafVectors(LeafFormat):
    """Synthetic data: vectors of 60 numbers, and as many classes as were asked for."""

    input_shape = (_NUMBERS,)
    class_names = tuple(map(str, range(_CLASSES)))
    class_numbers = tuple(range(2, _CLASSES + 1))

    @staticmethod
    def parse(x: Any, y: Any) -> tuple[np.ndarray, np.ndarray]:
        if not all(isinstance(row, list) and len(row) == _NUMBERS for row in x):
            raise ValueError(f"every input needs {_NUMBERS} numbers")
        reason = f"inputs must be finite numbers, {_NUMBERS} in each"
        return to_float32(_numbers(x, 2, reason), "input"), _whole_labels(y)

    def stored_spec(self, dtype: np.dtype) -> InputSpec:
        return InputSpec(VECTOR, self.input_shape, "float32")

    def input_spec(self) -> InputSpec:
        return self.stored_spec(np.dtype(np.float32))
