"""Colors and dashes of curves, the same in all pictures and pages as far as there are colors.

Each method and each measure has a style of its own; in a picture, methods whose styles have one
color get other ones that are free. Any two of `CURVES`, and black, differ by at
least 20 in CIE L*a*b* for readers with all kinds of cones and for those who lack one, on a white
page and, inverted, on a dark one. After eight curves, dashes are the second key.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from tff_pcdd import methods
from tff_pcdd.registry import is_built_in
from tff_pcdd.tables import BASELINE

BLACK = "#000000"
# Blue, orange, green, purple, maroon, pink, brown, navy; the last two are the darkest.
CURVES = (
    "#0b6bc8",
    "#e05a00",
    "#78965a",
    "#9669a5",
    "#873c4b",
    "#d27896",
    "#60480c",
    "#0c3084",
)
# Lengths of dashes and gaps in pixels; the colors return with the next pattern.
DASHES = ((), (7, 4), (2, 4), (10, 3, 2, 3), (5, 2), (10, 3, 2, 3, 2, 3))

# These have solid curves, because they are drawn most often. Training alone is drawn beside FedAvg,
# from which its color is far.
_FIRST = ("fedgela", "fedge", "fedloge", "fedmr", "ccvr", "local", "fedrod", "fedper")


class Style(NamedTuple):
    """How a curve is drawn.

    Attributes:
        color: hexadecimal.
        dashes: lengths of dashes and gaps in pixels; empty for a solid curve.
    """

    color: str
    dashes: tuple[int, ...] = ()

    def of_line(self) -> dict[str, Any]:
        """The arguments of matplotlib's `plot`."""
        # Matplotlib multiplies these lengths by the width of the line.
        scaled = tuple(length / 2 for length in self.dashes)
        return {"color": self.color, "linestyle": (0, scaled) if scaled else "-"}


_MEASURES = {
    "ga": Style(BLACK),
    "pa": Style(CURVES[0]),
    "pa_before": Style(CURVES[1]),
    # Often equal to the one before.
    "pa_before_masked": Style(CURVES[2], DASHES[1]),
    "va": Style(CURVES[3]),
}


def numbered(number: int) -> Style:
    """The style of the curve with a number, from 0 on; after 48, they repeat.

    Example:
        >>> numbered(1), numbered(9)
        (Style(color='#e05a00', dashes=()), Style(color='#e05a00', dashes=(7, 4)))
    """
    pattern, color = divmod(number, len(CURVES))
    return Style(CURVES[color], DASHES[pattern % len(DASHES)])


def of_method(name: str) -> Style:
    """The style of a method; FedAvg's is solid black.

    A method that is not registered, such as one of an imported module in the results of another
    user, has a style that depends on its name.
    """
    return Style(BLACK) if name == BASELINE else numbered(_number(name))


def _number(name: str) -> int:
    """The number of the style of a method other than FedAvg."""
    known = methods.registry.classes()
    # Methods of users come last, so that they change the style of no other.
    order = sorted(known, key=lambda each: not is_built_in(known[each]))
    order = [*_FIRST, *(each for each in order if each not in (*_FIRST, BASELINE))]
    return order.index(name) if name in order else len(_FIRST) + zlib.crc32(name.encode()) % 40


def of_methods(names: Iterable[str]) -> dict[str, Style]:
    """The styles of the methods of a picture: no two are equal, nor their colors if these suffice.

    They depend on which methods there are, but not on their order.
    """
    found: dict[str, Style] = {}
    left = []
    ranked = sorted({*names} - {BASELINE}, key=lambda name: (_number(name), name))
    for name in ranked:
        style = of_method(name)
        if style.color in {other.color for other in found.values()}:
            left.append(name)
        else:
            found[name] = style
    for name in left:
        style, used = of_method(name), {*found.values()}
        colors = {other.color for other in used}
        free = [color for color in CURVES if color not in colors]
        if free:
            style = style._replace(color=free[0])
        elif style in used:
            every = map(numbered, range(len(CURVES) * len(DASHES)))
            style = next((each for each in every if each not in used), style)
        found[name] = style
    return {name: found.get(name, Style(BLACK)) for name in names}


def of_curves(owners: Sequence[str]) -> list[Style]:
    """The styles of curves: the color of the method, and other dashes for further curves of it.

    Example:
        >>> [style.dashes for style in of_curves(["fedgela", "fedavg", "fedgela"])]
        [(), (), (7, 4)]
    """
    first = of_methods(owners)
    found: list[Style] = []
    for name in owners:
        style, used = first[name], {*found, *(first[other] for other in {*owners} - {name})}
        every = [style, *(style._replace(dashes=dashes) for dashes in DASHES)]
        # After as many curves as there are dashes, they repeat.
        found.append(next((each for each in every if each not in used), style))
    return found


def of_measure(name: str) -> Style:
    """The style of one of the accuracies over the rounds; GA is black."""
    return _MEASURES[name]
