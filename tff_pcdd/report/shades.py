"""Shades for tables and pictures of numbers.

Readers with any kind of color blindness tell them apart by their lightness.
"""

from __future__ import annotations

import base64
import io
import math

import numpy as np

# Shades of one hue, from none to the most.
LEVELS = 17
_LIGHTEST, _DARKEST = np.array([255, 255, 255]), np.array([8, 62, 120])

# Gains are blue and losses orange, in so many steps; their signs are in the cells too.
STEPS = 4
_GAIN, _LOSS = "#2b7bba", "#d9711c"

# Counts get logarithmic shades if the largest exceeds the median by more than this factor.
_WIDE = 8


def color(level: int) -> str:
    """The color of a shade, from 0 to LEVELS - 1."""
    share = level / (LEVELS - 1)
    rgb = np.round(_LIGHTEST + share * (_DARKEST - _LIGHTEST)).astype(np.uint8)
    return f"#{rgb.tobytes().hex()}"


def of_gain(gain: float, largest: float) -> str:
    """The class of the color of a gain: `gN` for gains and `lN` for losses, the strongest last.

    Args:
        gain: in percentage points.
        largest: the greatest absolute value of all gains.
    """
    step = math.ceil(STEPS * abs(gain) / largest) if largest else 1
    return f"{'g' if gain > 0 else 'l'}{max(1, min(STEPS, step))}"


def _mixed(hexadecimal: str, step: int) -> str:
    """A color mixed with white."""
    share = step / STEPS
    rgb = [round(255 + share * (value - 255)) for value in _rgb(hexadecimal)]
    return f"#{bytes(rgb).hex()}"


def _rgb(hexadecimal: str) -> list[int]:
    return [*bytes.fromhex(hexadecimal[1:])]


def luminance(hexadecimal: str) -> float:
    """The relative luminance of a color, as WCAG 2 defines it."""
    shares = [value / 255 for value in _rgb(hexadecimal)]
    linear = [v / 12.92 if v <= 0.04045 else ((v + 0.055) / 1.055) ** 2.4 for v in shares]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(first: str, second: str) -> float:
    """The contrast of two colors, from 1 to 21, as WCAG 2 defines it.

    Example:
        >>> round(contrast("#ffffff", "#000000"))
        21
    """
    brighter, darker = sorted((luminance(first), luminance(second)), reverse=True)
    return (brighter + 0.05) / (darker + 0.05)


def text_color(background: str) -> str:
    """Black or white, whichever is easier to read on a color."""
    return max("#000000", "#ffffff", key=lambda text: contrast(text, background))


def css() -> str:
    """A rule for each color: class `sN` for shade N, `gN` and `lN` for gains and losses."""
    colors = {f"s{level}": color(level) for level in range(LEVELS)}
    for letter, hue in (("g", _GAIN), ("l", _LOSS)):
        colors |= {f"{letter}{step}": _mixed(hue, step) for step in range(1, STEPS + 1)}
    return "\n".join(
        f".{name} {{ background: {background}; color: {text_color(background)}; }}"
        for name, background in colors.items()
    )


def of_counts(counts: np.ndarray) -> np.ndarray:
    """The shades of counts; 0 only for a count of 0.

    If the counts differ widely, shades are logarithmic: otherwise all but the largest counts would
    look the same.
    """
    held = counts[counts > 0]
    if not held.size:
        return np.zeros(counts.shape, np.uint8)
    if held.max() > _WIDE * np.median(held):
        return of_shares(np.log1p(counts) / np.log1p(held.max()))
    return of_shares(counts / held.max())


def of_shares(shares: np.ndarray) -> np.ndarray:
    """The shades of numbers from 0 to 1; 0 only for 0."""
    return np.ceil(np.clip(shares, 0, 1) * (LEVELS - 1)).astype(np.uint8)


def of_rows(matrix: np.ndarray) -> np.ndarray:
    """The shades of a confusion matrix: of each cell's share of its row."""
    totals = np.maximum(matrix.sum(axis=1, keepdims=True), 1)
    return of_shares(matrix / totals)


def picture(levels: np.ndarray) -> str:
    """A picture of shades [height, width], a pixel for each, as the data URI of a PNG file."""
    from matplotlib import image

    palette = np.array([_rgb(color(level)) for level in range(LEVELS)], np.uint8)
    file = io.BytesIO()
    # By default, the file names the version of matplotlib.
    image.imsave(file, palette[levels], format="png", metadata={"Software": "tff_pcdd"})
    return "data:image/png;base64," + base64.b64encode(file.getvalue()).decode()
