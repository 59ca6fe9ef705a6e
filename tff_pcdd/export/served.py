"""Answers of an exported model for rows of a table, arrays, texts or image files, in batches."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import tensorflow as tf

from tff_pcdd import files, text
from tff_pcdd.data import pillow
from tff_pcdd.data.checks import warn
from tff_pcdd.errors import DamagedFileError, DataError

# What is said of the values that a model takes.
_VALUES = {"uint8": "whole numbers from 0 to 255 (uint8)", "object": "texts"}

# Rows and images that are answered at a time.
_ROWS, _IMAGES = 4096, 64

# The most bytes of an image file, and the most pixels that are looked at; models have a limit of
# their own.
_MOST_BYTES, _MOST_PIXELS = 2**30, 2**27

# What surrounds the reasons of the model itself.
_ASSERTION = re.compile(r"assertion failed: \[(image_bytes: )?(.*)\]")

_OF_STORED, _OF_FILES = "serving_default", "serving_bytes"

Answers = dict[str, np.ndarray]


class ServedModel:
    """A SavedModel that `tasks.export` has written.

    Attributes:
        class_names: the names of the classes, in their order.
        takes: what the inputs are called: images, features or texts.
        shape: the shape of one of them; empty for texts.
        dtype: the type of their values; that of objects for texts.

    Raises:
        DamagedFileError: it cannot be loaded.
    """

    def __init__(self, directory: Path):
        self._directory = directory
        try:
            # Signatures do not keep their variables alive, but the model does.
            self._model = tf.saved_model.load(str(directory))
            signature = self._model.signatures[_OF_STORED]
            # Of all constants, only the names of the classes are made outside of the graph.
            (names,) = (each for each in signature.captured_inputs if each.dtype == tf.string)
            ((self.takes, self._spec),) = signature.structured_input_signature[1].items()
        except (OSError, LookupError, ValueError, AssertionError, tf.errors.OpError) as error:
            reason = str(error).strip().partition("\n")[0]
            raise DamagedFileError(f"{directory} cannot be loaded: {reason}") from error
        self.class_names = [name.decode() for name in names.numpy().tolist()]
        self.shape = tuple(self._spec.shape[1:])
        self.dtype = np.dtype(self._spec.dtype.as_numpy_dtype)

    def of_cells(self, cells: np.ndarray) -> Iterator[Answers]:
        """The answers to rows of a table, from `rows.cells`, in batches."""
        signature = self._model.signatures[_OF_STORED]
        most = _ROWS if cells.ndim < 3 else _IMAGES
        for start in range(0, len(cells), most):
            batch = tf.constant(cells[start : start + most], self._spec.dtype)
            yield _arrays(signature(**{self.takes: batch}))

    def of_arrays(self, x: np.ndarray, place: str) -> Iterator[Answers]:
        """The answers to images, vectors or texts, [n, …], in batches.

        Raises:
            DataError: the model takes inputs of another shape or type; names the place.
        """
        found, wanted = (_VALUES.get(str(each), str(each)) for each in (x.dtype, self.dtype))
        if x.shape[1:] != self.shape:
            # Texts are texts, of which nothing else is to be said.
            taken = ", ".join(dict.fromkeys((self.takes, wanted)))
            raise DataError(
                f"{place}: the samples are {found} of the shape {list(x.shape)}; the model takes "
                f"{taken} [{', '.join(map(str, ('n', *self.shape)))}]"
            )
        if x.dtype != self.dtype:
            raise DataError(
                f"{place}: the samples are {found}, and the model was trained on {wanted}; save "
                f"them as {wanted}, with the values that they had in training"
            )
        return self.of_cells(x)

    def of_images(
        self, paths: Sequence[Path], shown: Sequence[str], *, skip_broken: bool = False
    ) -> Iterator[Answers]:
        """The answers to image files, in batches.

        Args:
            paths: the files.
            shown: what each is called in messages.
            skip_broken: whether the answer to a file that is not read is empty, without a label and
                with probabilities of NaN, instead of an error; a warning counts such files.

        Raises:
            DataError: the model takes no image files, or one of them is not read; names it.
        """
        if _OF_FILES not in self._model.signatures:
            raise DataError(f"{self._directory} takes {self.takes}, and no image files")
        signature = self._model.signatures[_OF_FILES]
        broken: dict[str, str] = {}
        for start in range(0, len(paths), _IMAGES):
            contents = [files.read_bytes(path, _MOST_BYTES) for path in paths[start:][:_IMAGES]]
            try:
                answers = [_arrays(signature(image_bytes=tf.constant(contents)))]
            except tf.errors.InvalidArgumentError:
                answers = []
            # If a file is not read, each is asked about alone.
            for row, content in enumerate([] if answers else contents, start):
                try:
                    answers.append(_arrays(signature(image_bytes=tf.constant([content]))))
                except tf.errors.InvalidArgumentError as error:
                    broken[shown[row]] = _reason(paths[row], error)
                    if not skip_broken:
                        advice = "skip_broken_images leaves such answers empty"
                        raise DataError(f"{shown[row]}: {broken[shown[row]]}; {advice}") from error
                    answers.append(_no_answer(signature.structured_outputs))
            yield {name: np.concatenate([each[name] for each in answers]) for name in answers[0]}
        if broken:
            (first, *_), number = broken.items(), text.plural(len(broken), "image file")
            named = ": ".join(first)
            # A table may list a file several times.
            if len(broken) == len({*shown}):
                raise DataError(f"no image can be read: {named}")
            warn(f"no answer to {number}, which cannot be read: {text.listed([*broken], 5)}")


def _reason(path: Path, error: tf.errors.OpError) -> str:
    """Why a file is not read: what it is, or what is wrong with it."""
    reason = error.message.partition("\n\t [[")[0].rpartition("\n")[2].rstrip(".")
    stated = _ASSERTION.search(reason)
    if stated and stated[1]:
        return stated[2]
    found = pillow.look_at(os.fspath(path), _MOST_PIXELS, whole=True)
    return found if isinstance(found, str) else stated[2] if stated else reason


def _no_answer(outputs: Mapping[str, tf.TensorSpec]) -> Answers:
    """An empty answer to one input."""
    kinds = {tf.string: b"", tf.int32: -1, tf.int64: -1}
    return {
        name: np.full(
            [1, *spec.shape[1:]], kinds.get(spec.dtype, np.nan), spec.dtype.as_numpy_dtype
        )
        for name, spec in outputs.items()
    }


def _arrays(answers: Mapping[str, tf.Tensor]) -> Answers:
    """The outputs of a signature, which have to be finite."""
    found = {name: values.numpy() for name, values in answers.items()}
    if not np.isfinite(found["probabilities"]).all():
        raise DataError("the answers of the model are not finite; its training has diverged")
    return found
