"""Curves over rounds, as SVG paths.

The paths fill a square that a page stretches to any width, without changing the width of lines;
labels are text of the page itself, so they stay readable on narrow screens.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import statistics
from collections.abc import Sequence
from typing import NamedTuple

from tff_pcdd.training.colors import BLACK, Style

# Width and height of the square.
SIZE = 1000

# With more points than this, only some are drawn.
_MAX_POINTS = 500
# With at most this many points, each has a dot.
_MAX_DOTS = 40
# With more curves than this, bands would hide one another.
_MAX_BANDS = 6
# The most round numbers along an axis.
_TICKS = 6
# A value above this multiple of the median is drawn at the upper edge.
_OUTLIER = 20

Points = Sequence[tuple[float, float]]
_PLAIN = Style(BLACK)


@dataclasses.dataclass(frozen=True)
class Line:
    """A curve.

    Attributes:
        name: the text of the legend.
        points: pairs of round and value.
        spread: standard deviation at each point; empty if there is none.
        style: its color and dashes.
    """

    name: str
    points: Points
    spread: Sequence[float] = ()
    style: Style = _PLAIN


@dataclasses.dataclass(frozen=True)
class Drawn:
    """A curve as it is drawn.

    Attributes:
        name: as in `Line`.
        path: the data of an SVG path.
        dots: the data of a path of short strokes, which are drawn as dots; empty if there are many.
        band: the data of a closed path, the standard deviation; empty if there is none.
        color, dashes: the style of the stroke.
        last: the last value.
        values: rounds and values, as `1,50.5 2,60`, to be shown beside a pointer.
    """

    name: str
    path: str
    dots: str
    band: str
    color: str
    dashes: str
    last: float
    values: str


@dataclasses.dataclass(frozen=True)
class Chart:
    """Curves with their axes.

    Attributes:
        title: what is drawn.
        unit: of the values, such as "%".
        lines: the curves.
        crosses: the data of a path that marks rounds on the x axis; empty for none.
        grid: the data of a path, a horizontal line for each label.
        x_labels, y_labels: pairs of a text and its position, in percent of the width or height.
        clipped: the value at the upper edge, if larger ones are drawn there; else None.
        description: the curves in words.
    """

    title: str
    unit: str
    lines: Sequence[Drawn]
    crosses: str
    grid: str
    x_labels: Sequence[tuple[str, float]]
    y_labels: Sequence[tuple[str, float]]
    clipped: float | None
    description: str


def chart(
    title: str, lines: Sequence[Line], *, percent: bool, marked: Sequence[int] = ()
) -> Chart | None:
    """Draws curves; None if none of them has two points with finite values.

    Args:
        percent: whether the values are percentages; else, 0 is on the axis.
        marked: rounds with a cross on the x axis.
    """
    lines = [line for line in map(_finite, lines) if line.points]
    if not any(len(line.points) > 1 for line in lines):
        return None
    banded = len(lines) <= _MAX_BANDS
    frame = _frame(lines, percent=percent, banded=banded)
    first, last, low, high = frame
    y_ticks = ticks(low, high)
    highest = max(value for line in lines for _, value in line.points)
    return Chart(
        title,
        "%" if percent else "",
        [_drawn(line, frame, banded=banded) for line in lines],
        " ".join(_cross(frame.x(number)) for number in marked if first <= number <= last),
        "".join(f"M0 {_number(frame.y(tick))}H{SIZE}" for tick in y_ticks),
        [(f"{tick:g}", frame.x(tick) * 100 / SIZE) for tick in _rounds_labelled(first, last)],
        [(f"{tick:g}", 100 - frame.y(tick) * 100 / SIZE) for tick in y_ticks],
        high if highest > high else None,
        "; ".join(_described(line, " %" if percent else "") for line in lines),
    )


class _Frame(NamedTuple):
    """The rounds and values at the edges of the square, and where others are in it."""

    first: float
    last: float
    low: float
    high: float

    def x(self, number: float) -> float:
        return SIZE * (number - self.first) / (self.last - self.first)

    def y(self, value: float) -> float:
        return SIZE * (self.high - min(max(value, self.low), self.high)) / (self.high - self.low)

    def places(self, points: Points) -> Points:
        return [(self.x(number), self.y(value)) for number, value in points]


def _frame(lines: Sequence[Line], *, percent: bool, banded: bool) -> _Frame:
    rounds = [number for line in lines for number, _ in line.points]
    values = [value for line in lines for _, value in line.points]
    edges = [edge for line in lines if banded for edge in _edges(line)]
    if percent:
        low, high = _percent_range([*values, *(min(max(edge, 0.0), 100.0) for edge in edges)])
    else:
        low, high = _range([*values, *edges])
    return _Frame(min(rounds), max(rounds), low, high)


def _drawn(line: Line, frame: _Frame, *, banded: bool) -> Drawn:
    thinned = _thinned(line.points)
    places = frame.places(thinned)
    return Drawn(
        line.name,
        _path(places),
        _dots(places) if len(places) <= _MAX_DOTS else "",
        _band(line, frame) if line.spread and banded else "",
        line.style.color,
        " ".join(map(str, line.style.dashes)),
        line.points[-1][1],
        " ".join(f"{number:g},{value:.4g}" for number, value in thinned),
    )


def _described(line: Line, unit: str) -> str:
    """A curve in words."""
    (first, start), (last, end) = line.points[0], line.points[-1]
    return f"{line.name}: {start:.3g}{unit} in round {first}, {end:.3g}{unit} in round {last}"


def _finite(line: Line) -> Line:
    """A curve without infinite values, such as those of a user's own metric."""
    kept = [math.isfinite(value) for _, value in line.points]
    points, spread = itertools.compress(line.points, kept), itertools.compress(line.spread, kept)
    return dataclasses.replace(line, points=[*points], spread=[*spread])


def ticks(low: float, high: float) -> list[float]:
    """Round numbers in an interval, evenly spaced; at most `_TICKS`.

    Example:
        >>> ticks(0, 100), ticks(0, 2.3)
        ([0.0, 20.0, 40.0, 60.0, 80.0, 100.0], [0.0, 0.5, 1.0, 1.5, 2.0])
    """
    width = (high - low) / (_TICKS - 1)
    power = 10.0 ** math.floor(math.log10(width))
    step = next(power * factor for factor in (1, 2, 2.5, 5, 10) if power * factor >= width * 0.999)
    first = math.ceil(low / step - 1e-9)
    found = range(first, math.floor(high / step + 1e-9) + 1)
    return [float(f"{index * step:.12g}") for index in found]


def _rounds_labelled(first: float, last: float) -> list[float]:
    """Whole numbers for the x axis; the first and the last round are among them."""
    inner = [tick for tick in ticks(first, last) if tick == int(tick)]
    apart = (last - first) / 12
    kept = [tick for tick in inner if tick - first > apart and last - tick > apart]
    return [first, *kept, last]


def _percent_range(values: Sequence[float]) -> tuple[float, float]:
    """An interval of whole tens around percentages, at least 20 wide."""
    low, high = math.floor(min(values) / 10) * 10, math.ceil(max(values) / 10) * 10
    if high - low < 20:
        low, high = (low, low + 20) if low <= 80 else (80, 100)
    return low, high


def _range(values: Sequence[float]) -> tuple[float, float]:
    """An interval that holds 0 and all values but outliers above."""
    typical = statistics.median(values)
    usual = [value for value in values if typical <= 0 or value <= _OUTLIER * typical]
    low, high = min(0.0, *usual), max(0.0, *usual)
    if low == high:
        return 0.0, 1.0
    first, second, *_ = ticks(low, high)
    step = second - first
    ends = math.floor(low / step + 1e-9) * step, math.ceil(high / step - 1e-9) * step
    low, high = (float(f"{end:.12g}") for end in ends)
    return low, high


def _thinned(points: Points) -> Points:
    """Every n-th point, so that the path is not longer than what can be seen; also the last one."""
    every = -(-len(points) // _MAX_POINTS)
    return points if every == 1 else [*points[:-1:every], points[-1]]


def _number(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")


def _path(places: Points) -> str:
    return "M" + "L".join(f"{_number(x)} {_number(y)}" for x, y in places)


def _dots(places: Points) -> str:
    return "".join(f"M{_number(x)} {_number(y)}h0" for x, y in places)


def _cross(x: float) -> str:
    left, right = _number(x - 6), _number(x + 6)
    return f"M{left} 970L{right} 1000M{left} 1000L{right} 970"


def _edges(line: Line) -> list[float]:
    """The values at the edges of a band."""
    pairs = zip(line.points, line.spread, strict=False)
    return [edge for (_, value), spread in pairs for edge in (value - spread, value + spread)]


def _band(line: Line, frame: _Frame) -> str:
    """The area between the mean minus and plus the standard deviation."""
    pairs = [*zip(line.points, line.spread, strict=True)]
    upper = [(number, value + spread) for (number, value), spread in pairs]
    lower = [(number, value - spread) for (number, value), spread in pairs]
    return _path(frame.places([*_thinned(upper), *reversed(_thinned(lower))])) + "Z"
