"""Means and standard deviations of channels, or of the numbers of vectors."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

import numpy as np

Statistics = tuple[tuple[float, ...], tuple[float, ...]]

# Rows that are converted at a time.
_ROWS = 1024


def measure(parts: Iterable[np.ndarray], white: float) -> Statistics:
    """Mean and standard deviation of each channel, the last axis.

    Args:
        parts: values, [n, ..., channels], one array after the other.
        white: the unit of the results.

    Returns:
        The means and the deviations; 1 instead of the deviation of a constant channel, or of one
        that is too small for float32.
    """
    number, sums, squares = 0, np.zeros(1), np.zeros(1)
    first, varies = None, np.zeros(1, bool)
    for part in parts:
        # Sums of whole numbers are exact, so they do not depend on the machine.
        values = np.asarray(part, np.float64).reshape(-1, part.shape[-1])
        number += len(values)
        sums, squares = sums + values.sum(axis=0), squares + (values**2).sum(axis=0)
        if not varies.all():
            first = values[0] if first is None else first
            varies = varies | (values != first).any(axis=0)
    mean = sums / number
    # Rounding errors are no deviation.
    std = np.sqrt(np.maximum(squares / number - mean**2, 0)) * varies
    mean, std = mean / white, std / white
    # Processors take such numbers for 0, and 0 divided by it is NaN.
    std[std < np.finfo(np.float32).tiny] = 0
    deviations = tuple(_rounded(value, value) or 1.0 for value in std)
    return tuple(map(_rounded, mean, np.minimum(np.abs(mean), deviations))), deviations


def _rounded(value: float, unit: float) -> float:
    """A value with four digits of a unit; further ones would be noise, as decoders differ."""
    return round(float(value), 3 - math.floor(math.log10(unit))) if unit else 0.0


def in_parts(x: np.ndarray) -> Iterator[np.ndarray]:
    """An array in parts, of which a copy in another type takes little memory."""
    return (x[start : start + _ROWS] for start in range(0, len(x), _ROWS))
