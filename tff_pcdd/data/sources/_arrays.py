"""Inputs of your own in arrays: images or vectors, their type, scale and statistics."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from tff_pcdd.data.checks import first_outside, to_float32, warn
from tff_pcdd.data.input_spec import IMAGE, VECTOR, InputSpec
from tff_pcdd.data.sources import DatasetInfo, ImageSource, LoadRequest, PooledData
from tff_pcdd.data.sources._cells import is_far, num_different, num_rounded
from tff_pcdd.data.sources._missing import MissingValues
from tff_pcdd.data.sources._names import as_names, check_once, check_vector
from tff_pcdd.data.sources._own import OwnSamples, OwnSource, check_parts, pick
from tff_pcdd.data.sources._statistics import in_parts, measure
from tff_pcdd.data.sources._tasks import VOLUMES
from tff_pcdd.errors import DataError, SettingError

# Resizing and filters may raise pixels from 0 to 1 above 1, but not above this.
_OVERSHOOT = 2


@dataclasses.dataclass(frozen=True)
class OwnArrays(OwnSource, ImageSource, MissingValues):
    """Base class of inputs in arrays."""

    def pool_arrays(
        self,
        place: str,
        x: Any,
        labels: Any,
        sites: Any,
        parts: Any | None,
        request: LoadRequest,
        *,
        class_names: Iterable[Any] | None = None,
        groups: Any | None = None,
    ) -> PooledData:
        """Makes a data set of arrays; `own.from_arrays` describes them.

        Args:
            place: what the arrays are from, for messages.
            x, labels, sites, parts, groups: of each sample, [n, ...]; None for no sites, no groups,
                and test samples that are chosen.
            request: which sites to keep.
            class_names: a name for each label from 0.

        Raises:
            DataError: if the arrays do not fit each other, or hold values that cannot be used.
        """
        inputs = as_inputs(x, place)
        number = len(inputs)
        if inputs.ndim == 2:
            _warn_of_merged(place, np.asarray(x))
        given = {"label": labels, "site": sites, "group": groups}
        columns = {
            what: check_vector(values, number, what, place)
            for what, values in given.items()
            if values is not None
        }
        if parts is not None:
            texts = as_names(check_vector(parts, number, "split", place), "split", place)
            parts = check_parts(texts, place)
        needed: dict[str, Any] = {f"the {what}": values for what, values in columns.items()}
        kept, notes = self.complete_rows(place, needed, None)
        rows = kept.tolist()
        columns = {what: values[kept] for what, values in columns.items()}
        if notes:
            inputs = inputs[kept]
        names = {
            what: as_names(values, what, place, rows)
            for what, values in columns.items()
            if what != "label"
        }
        known = None if class_names is None else known_classes(class_names, place)
        samples = OwnSamples(
            place,
            inputs,
            class_labels(columns["label"], known, place, rows),
            names.get("site"),
            pick(parts, rows),
            lambda row: f"sample {rows[row]}",
            notes,
            names.get("group"),
            class_names=known,
        )
        return self.pool(samples, request, lambda train: self._describe(place, inputs, train))

    def _describe(self, place: str, x: np.ndarray, train: np.ndarray) -> InputSpec:
        """The input spec of all inputs, with the statistics of those for training."""
        if x.ndim == 2:
            self._check_plain()
            return vector_spec(place, train)
        white = white_of(x)
        if x.min() >= 0 and white < x.max() <= _OVERSHOOT:
            warn(
                f"{place}: pixels reach {x.max()!s}, so nobody knows which value is white, and "
                "exported models read no image files; if 1 is white: np.clip(x, 0, 1)"
            )
        measured: tuple[tuple[float, ...] | None, tuple[float, ...] | None] = (None, None)
        if self.input_normalization == "dataset":
            measured = measure(in_parts(train), white)
        elif self.input_normalization == "imagenet" and x.shape[-1] != 3:
            raise SettingError("input_normalization", "imagenet", "needs images of 3 channels")
        info = DatasetInfo(self.name, IMAGE, 2, x.shape[1:], mean=measured[0], std=measured[1])
        spec = self.image_spec(str(x.dtype), 1 / white, info)
        return dataclasses.replace(spec, has_white=bool(x.min() >= 0 and x.max() <= white))

    def _check_plain(self) -> None:
        """Refuses settings of images for vectors."""
        if self.augmentation != "none":
            raise SettingError("augmentation", self.augmentation, "needs images, not vectors")
        if self.input_normalization != "dataset":
            raise SettingError(
                "input_normalization", self.input_normalization, "vectors use their own statistics"
            )


def as_inputs(x: Any, place: str) -> np.ndarray:
    """Images as uint8 or float32 [n, height, width, channels], or vectors as float32 [n, numbers].

    Raises:
        DataError: if they have another shape, or a value is not a finite number.
    """
    if np.ma.is_masked(x):
        raise DataError(f"{place}: inputs are masked; fill them, or leave these samples out")
    try:
        array = np.asarray(x)
    except ValueError:
        raise DataError(f"{place}: the inputs have different shapes; bring them to one") from None
    if array.dtype.kind not in "buif":
        raise DataError(f"{place}: the inputs are {array.dtype}, not numbers of one shape")
    if array.shape[:1] == (0,):
        raise DataError(f"{place}: there are no samples; the inputs have shape {array.shape}")
    if array.ndim not in (2, 3, 4) or 0 in array.shape:
        hint = f"; {VOLUMES}" if array.ndim > 4 else ""
        raise DataError(
            f"{place}: the inputs have shape {array.shape}; images have [n, height, width] or "
            f"[n, height, width, channels], vectors [n, numbers]{hint}"
        )
    if array.ndim == 4:
        _check_channels_last(array.shape, place)
    if array.ndim == 3:
        array = array[..., None]
    if array.ndim == 4 and array.dtype.kind in "ui" and array.min() >= 0 and array.max() <= 255:
        return array.astype(np.uint8, copy=False)
    try:
        return to_float32(array, "value")
    except DataError as error:
        raise DataError(f"{place}: {error}") from None


def _check_channels_last(shape: tuple[int, ...], place: str) -> None:
    """Refuses images whose channels come first, and warns where that is only likely."""
    _, first, second, last = shape
    if last <= 4:
        return
    if first == second == last:
        raise DataError(f"{place}: the inputs have shape {shape}; {VOLUMES}")
    if first == second and first not in (1, 3):
        return
    read = f"the inputs have shape {shape}, {last} channels of {second}×{first} pixels"
    way_on = "channels come last: np.moveaxis(x, 1, -1)"
    if first in (1, 3):
        raise DataError(f"{place}: {read}; {way_on}")
    if second == last:
        raise DataError(f"{place}: {read}; {way_on}, or np.swapaxes(x, 1, 2) if they do")
    if first < min(second, last):
        warn(f"{place}: {read}; if the second axis holds the channels: {way_on}")


def _warn_of_merged(place: str, x: np.ndarray) -> None:
    """Warns of numbers so far from 0 that several become one in float32, [n, numbers]."""
    if x.dtype.itemsize <= np.dtype(np.float32).itemsize:
        return
    for index in np.flatnonzero(is_far(x)).tolist():
        column = x[:, index].astype(np.float64)
        if num_rounded(column) < num_different(column):
            warn(
                f"{place}: the {num_different(column)} different values of feature {index} become "
                f"{num_rounded(column)} in float32; subtract {column.mean():.17g} from them"
            )


def white_of(x: np.ndarray) -> float:
    """The value of a white pixel: 255 for pixels from 0 to 255, else 1.

    Of other values, such as those of 16 bits or from -1 to 1, nobody knows which one is white.
    """
    largest = _OVERSHOOT if x.dtype.kind == "f" else 1
    return 255.0 if x.max() > largest and x.min() >= 0 and x.max() <= 255 else 1.0


def vector_spec(place: str, train: np.ndarray, names: Sequence[str] = ()) -> InputSpec:
    """The input spec of vectors, with means and deviations from those for training.

    Warns of numbers that are the same in all of them.
    """
    mean, std = measure(in_parts(train), 1.0)
    ranges = np.ptp(train, axis=0)
    for chosen, what in (
        (ranges == 0, "constant in all training samples"),
        ((ranges > 0) & (ranges < np.finfo(np.float32).tiny), "so small that all of them become 0"),
    ):
        positions = np.flatnonzero(chosen).tolist()
        if positions:
            shown = [names[index] if names else str(index) for index in positions[:5]]
            more = f" and {len(positions) - 5} more" if len(positions) > 5 else ""
            warn(f"{place}: features {', '.join(shown)}{more} are {what}")
    return InputSpec(VECTOR, train.shape[1:], "float32", mean=mean, std=std)


def known_classes(class_names: Iterable[Any], place: str) -> list[str]:
    """The names of the classes, in their order; refused if one is missing or occurs twice."""
    try:
        names = list(class_names)
    except TypeError:
        raise DataError(f"{place}: class_names is a single value, not a list of names") from None
    known = as_names(names, "class name", place)
    check_once(known, "class name", place)
    return known


def class_labels(
    given: np.ndarray, known: Sequence[str] | None, place: str, rows: Sequence[int]
) -> list[str]:
    """The name of each sample's class; labels are indices into the known names, if any are."""
    if known is None:
        return as_names(given, "label", place, rows)
    if given.dtype.kind not in "iu":
        raise DataError(
            f"{place}: labels such as {str(given[0])!r:.40} are no whole numbers; with "
            "class_names, they are the positions of these names, 0, 1, …"
        )
    row = first_outside(given, len(known))
    if row is not None:
        from_one = given.min() == 1 and given.max() == len(known)
        raise DataError(
            f"{place}: label {given[row]} of sample {rows[row]} is not within 0 to {len(known) - 1}"
            f"{'; subtract 1, because labels count from 0' if from_one else ''}"
        )
    return [known[label] for label in given]
