"""Warnings of columns of a table that seem to be wrong, and of those that give the label away."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np

from tff_pcdd.data.checks import listed, warn
from tff_pcdd.data.sources._cells import Cells, is_far, num_different, num_rounded
from tff_pcdd.data.sources._own import OwnSamples
from tff_pcdd.data.sources._users import rows_of

# How many times as large a standard deviation is that a single number determines, and a median of
# another unit, such as centimeters or mg/dl for meters or mmol/l; and how many times as large the
# smallest number of another unit is as the largest one of the first.
_OUTLYING, _OTHER_UNIT, _APART = 10, 5, 1.2

# The share of each class that a column has to tell apart in order to give the class away.
_GIVEN_AWAY = 0.99

# The fewest samples from which anything is concluded.
_FEWEST = 10


def far_numbers(place: str, cells: Cells) -> list[str]:
    """Columns of which different numbers become one in float32, unless their mean is subtracted.

    Warns of all columns with such numbers.
    """
    far = []
    for name, column in cells.numbers():
        if num_rounded(column) == num_different(column):
            continue
        text = (
            f"{place}: the {num_different(column)} different numbers of column {name!r} become "
            f"{num_rounded(column)} in float32"
        )
        if is_far(column):
            far.append(name)
            text += "; their mean is subtracted before, also in exported models"
        warn(text)
    return far


def warn_of_answers(place: str, cells: Cells, labels: Sequence[str]) -> None:
    """Warns of columns from which alone the class of each sample follows.

    Their values, missing ones included, are as many intervals as there are classes, or few in view
    of the number of samples; otherwise, it may be by accident. If they are few, some samples may be
    exceptions, such as typing errors.
    """
    classes = np.unique(labels, return_inverse=True)[1]
    if len(labels) < _FEWEST or classes.max(initial=0) == 0:
        return
    for name, column in zip(cells.names, cells.x.T, strict=True):
        different, values = np.unique(column, return_inverse=True)
        exceptions = None
        if len(different) ** 2 <= len(labels):
            exceptions = _num_exceptions(values, classes)
        else:
            changes = np.diff(classes[np.lexsort((classes, values))]) != 0
            between = np.diff(np.sort(values)) != 0
            if changes.sum() == classes.max() and between[changes].all():
                exceptions = 0
        if exceptions is not None:
            every = f"all samples but {exceptions}" if exceptions else "every sample"
            warn(
                f"{place}: the class of {every} follows from column {name!r} alone; is it a "
                "result of the label, which will not be known later?"
            )


def _num_exceptions(values: np.ndarray, classes: np.ndarray) -> int | None:
    """How many samples have another class than most samples with the same value.

    None if they are too many in any class, so that the values do not give the classes away. A class
    with exceptions has at least 100 samples therefore.
    """
    different, num_classes = values.max() + 1, classes.max() + 1
    if num_classes > different:
        return None
    flat = np.bincount(values * num_classes + classes, minlength=different * num_classes)
    counts = flat.reshape(different, num_classes)
    kept = np.bincount(counts.argmax(axis=1), counts.max(axis=1), num_classes)
    is_given_away = (kept >= _GIVEN_AWAY * counts.sum(axis=0)).all()
    return len(values) - int(kept.sum()) if is_given_away else None


def warn_of_outliers(cells: Cells, samples: OwnSamples) -> None:
    """Warns of a number beside which all others of its column are nearly equal.

    Columns are divided by their standard deviation, which such a number determines.
    """
    for name, column in cells.numbers():
        there = column[~np.isnan(column)]
        if len(there) < _FEWEST:
            continue
        extreme = there[np.argmax(np.abs(there - np.median(there)))]
        others = there[there != extreme]
        if len(others) < _FEWEST or not 0 < _OUTLYING * others.std() < there.std():
            continue
        row = int(np.argmax(column == extreme))
        warn(
            f"{samples.place}, {samples.shown(row)}: {extreme:.12g} in column {name!r} is so far "
            "from the others that a model can hardly tell these apart; correct it, or if it means "
            f"that the value is missing: missing_markers={extreme:.12g}"
        )


def warn_of_units(cells: Cells, samples: OwnSamples) -> None:
    """Warns of columns whose numbers at a site seem to have another unit than those elsewhere.

    Where the sites have no class in common, classes may be what differs. Ranges that nearly meet
    are those of one unit, in an order, such as the ages at hospitals for children and for adults.
    """
    sites = rows_of(samples.sites or [""])
    large = {site: rows for site, rows in sites.items() if len(rows) >= _FEWEST}
    for name, column in cells.numbers():
        if not np.nanmin(column, initial=np.inf) > 0:
            continue
        found = [
            (site, own[~np.isnan(own)]) for site, rows in large.items() for own in [column[rows]]
        ]
        ranges = sorted(
            (float(np.median(own)), float(own.min()), float(own.max()), site)
            for site, own in found
            if len(own) >= _FEWEST and own.min() < own.max()
        )
        gaps = [high[0] / low[0] for low, high in itertools.pairwise(ranges)]
        if not gaps or max(gaps) < _OTHER_UNIT:
            continue
        split = gaps.index(max(gaps)) + 1
        most, least = max(own[2] for own in ranges[:split]), min(own[1] for own in ranges[split:])
        low, high = (sorted(own[3] for own in part) for part in (ranges[:split], ranges[split:]))
        classes, others = (
            {samples.labels[row] for site in part for row in large[site]} for part in (low, high)
        )
        if _APART * most < least and classes & others:
            warn(
                f"{samples.place}: column {name!r} is at most {most:g} at {listed('site', low)} "
                f"and at least {least:g} at {listed('site', high)}; if units differ, convert one"
            )
