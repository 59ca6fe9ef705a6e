"""Checks of a federation's inputs against its input spec."""

from __future__ import annotations

import numpy as np

from tff_pcdd.data.checks import first_beyond, warn
from tff_pcdd.data.input_spec import IMAGE, TEXT, InputSpec
from tff_pcdd.errors import DataError

# The largest magnitude of a normalized pixel that is plausible. Pixels from 0 to 255 that nothing
# scales down reach 255, or 1000 if they are divided by a deviation of pixels from 0 to 1.
_PLAUSIBLE = 100


def check_form(where: str, x: np.ndarray, spec: InputSpec) -> None:
    """Checks the type and the shape of raw inputs, and that ids of text are in the vocabulary.

    Messages say where they are: in which data set and part.
    """
    if spec.dtype == "string":
        if x.dtype.kind != "S" or x.ndim != 1:
            raise DataError(
                f"{where} inputs are {x.dtype} of shape {x.shape}: image files are given by their "
                "paths, bytes in an array of shape [n]"
            )
        return
    if x.dtype != spec.dtype:
        raise DataError(
            f"{where} inputs are {x.dtype}, but the input spec says {spec.dtype}; for float32 "
            'images from 0 to 1 use image_spec(dtype="float32", scale=1)'
        )
    if x.shape[1:] != spec.shape:
        raise DataError(
            f"{where} inputs have shape {x.shape[1:]}, but the input spec says {spec.shape}"
        )
    largest = spec.vocabulary_size
    if spec.kind == TEXT and largest and x.size and not 0 <= x.min() <= x.max() < largest:
        raise DataError(
            f"{where} inputs run from {x.min()} to {x.max()}, not within 0 to {largest - 1}, the "
            "ids of the vocabulary"
        )


def first_nonfinite(x: np.ndarray, spec: InputSpec) -> tuple[int, ...] | None:
    """The position of the first value that is not finite once it is normalized; None for none."""
    if spec.dtype != "float32":
        return None
    growth = spec.scale / min(spec.std or (1.0,))
    largest = float(np.finfo(np.float32).max)
    # The margin is for rounding errors and for means.
    return first_beyond(x, largest if growth <= 1 else largest / growth * 0.99)


def check_range(where: str, x: np.ndarray, spec: InputSpec) -> None:
    """Warns of images whose pixels are not scaled down, with which training fails or diverges."""
    if spec.kind != IMAGE or not x.size:
        return
    ends = np.array([x.min(), x.max()], np.float64)[:, None] * spec.scale
    normalized = (ends - np.array(spec.mean or (0,))) / np.array(spec.std or (1,))
    if np.abs(normalized).max() > _PLAUSIBLE:
        warn(
            f"{where} inputs run from {x.min():g} to {x.max():g} and reach "
            f"{np.abs(normalized).max():.3g} once they are scaled and normalized; for pixels from "
            "0 to 255 use scale=1/255 in the input spec"
        )
