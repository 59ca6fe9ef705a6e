"""Checks of values that would change without a word when they are stored: labels and inputs."""

from __future__ import annotations

import contextlib
import contextvars
import functools
import logging
from collections.abc import Iterator, Sequence

import numpy as np

from tff_pcdd import stages
from tff_pcdd.errors import DataError

_logger = logging.getLogger(__name__)

# The number of values that are checked at a time, so that checks of large arrays take little
# memory.
_CHUNK = 2**24


def to_int32(labels: np.ndarray) -> np.ndarray:
    """Labels, whole numbers [n], as int32; those beyond it are refused."""
    if labels.dtype == np.int32:
        return labels
    with np.errstate(invalid="ignore"):
        converted = labels.astype(np.int32)
    wrong = converted != labels
    if wrong.any():
        row = int(np.argmax(wrong))
        raise DataError(f"label {labels[row]} of sample {row} is not an int32 number")
    return converted


def first_outside(labels: np.ndarray, num_classes: int) -> int | None:
    """The position of the first label, [n], that is no whole number from 0 to `num_classes` - 1."""
    wrong = (labels < 0) | (labels >= num_classes) | (labels != np.floor(labels))
    return int(np.argmax(wrong)) if wrong.any() else None


def to_float32(values: np.ndarray, name: str = "pixel") -> np.ndarray:
    """The values of samples, [n, ...], as float32.

    Raises:
        DataError: if a value is NaN or infinite, or becomes infinite; names its position, and says
            what it is.
    """
    with np.errstate(over="ignore"):
        converted = values.astype(np.float32)
    finite = np.isfinite(converted)
    if not finite.all():
        position = np.unravel_index(int(np.argmin(finite)), values.shape)
        raise DataError(
            f"{name}s must be finite numbers in float32; {name} {_shown(position[1:])} of sample "
            f"{position[0]} is {values[position]}"
        )
    return converted


def first_beyond(x: np.ndarray, limit: float) -> tuple[int, ...] | None:
    """The indices of the first of float32 values, [n, ...], that is NaN or beyond ±limit."""
    rows = max(1, _CHUNK // max(1, int(np.prod(x.shape[1:]))))
    for start in range(0, len(x), rows):
        wrong = ~(np.abs(x[start : start + rows]) <= limit)
        if wrong.any():
            row, *rest = np.unravel_index(int(np.argmax(wrong)), wrong.shape)
            return int(row) + start, *map(int, rest)
    return None


# Whether warnings of the data have been given already, by the process that trained with them.
_given = contextvars.ContextVar("given", default=False)


@contextlib.contextmanager
def warned_before() -> Iterator[None]:
    """Data that are loaded in this block are those of a run, whose training has warned of them."""
    token = _given.set(True)
    try:
        yield
    finally:
        _given.reset(token)


def is_warned_before() -> bool:
    """Whether the caller is in a block of `warned_before`."""
    return _given.get()


def warn(text: str) -> None:
    """Warns of something in the data; once per process, since studies load data for every run."""
    if not is_warned_before():
        warn_once(text)


@functools.cache
def warn_once(text: str) -> None:
    """As `warn`, whose memory it is."""
    _logger.warning("%s", text)


@functools.cache
def say(text: str) -> None:
    """Says what was loaded, once per process; only programs show it."""
    logging.getLogger(stages.LOADED).info("%s", text)


def is_unicode(text: str) -> bool:
    """Whether a text has no lone surrogates, as those in the place of other bytes of file names."""
    return text == text.encode(errors="ignore").decode()


def listed(kind: str, names: Sequence[str]) -> str:
    """Up to five names with what they are: `sites a, b`."""
    kinds = {"class": "classes"}.get(kind, f"{kind}s")
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    return f"{kind if len(names) == 1 else kinds} {', '.join(names[:5])}{more}"


def _shown(position: tuple[np.integer, ...]) -> str:
    return f"({', '.join(map(str, position))})" if len(position) > 1 else str(*position)
