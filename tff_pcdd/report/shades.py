"""Colors: shades for tables and pictures of numbers, and the colors of curves.

All of them are told apart by readers with any kind of color blindness: shades by their lightness,
curves also by the pattern of their dashes.
"""

from __future__ import annotations

import base64
import io

import numpy as np

# Shades of one hue, from none to the most.
LEVELS = 17
_LIGHTEST, _DARKEST = np.array([255, 255, 255]), np.array([8, 62, 120])

# Counts get logarithmic shades if the largest exceeds the median by more than this factor.
_WIDE = 8

# Each has a contrast of at least 3 on white, and the first ones differ for all readers.
CURVES = (
    "#0072b2",
    "#c4500a",
    "#2a9d8f",
    "#7a1f4b",
    "#00798c",
    "#3b2f8f",
    "#d1495b",
    "#6b5b00",
)
BASELINE = "#000000"
# Lengths of dashes and gaps in pixels; the same color returns with another pattern.
DASHES = ("", "7 4", "2 4", "10 3 2 3")


def color(level: int) -> str:
    """The color of a shade, from 0 to LEVELS - 1."""
    share = level / (LEVELS - 1)
    rgb = np.round(_LIGHTEST + share * (_DARKEST - _LIGHTEST)).astype(int)
    return "#" + "".join(f"{value:02x}" for value in rgb)


def luminance(hexadecimal: str) -> float:
    """The relative luminance of a color, as WCAG 2 defines it."""
    rgb = [int(hexadecimal[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [v / 12.92 if v <= 0.04045 else ((v + 0.055) / 1.055) ** 2.4 for v in rgb]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(first: str, second: str) -> float:
    """The contrast of two colors, from 1 to 21, as WCAG 2 defines it.

    Example:
        >>> round(contrast("#ffffff", "#000000"))
        21
    """
    brighter, darker = sorted((luminance(first), luminance(second)), reverse=True)
    return (brighter + 0.05) / (darker + 0.05)


def text_color(level: int) -> str:
    """Black or white, whichever is easier to read on a shade."""
    return max("#000000", "#ffffff", key=lambda text: contrast(text, color(level)))


def css() -> str:
    """A rule for each shade: class `sN` for shade N."""
    return "\n".join(
        f".s{level} {{ background: {color(level)}; color: {text_color(level)}; }}"
        for level in range(LEVELS)
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
    """A picture of shades with a pixel for each, as the data URI of a PNG file.

    Args:
        levels: shades, [height, width].
    """
    from matplotlib import image

    palette = np.array(
        [[int(color(i)[j : j + 2], 16) for j in (1, 3, 5)] for i in range(LEVELS)], np.uint8
    )
    file = io.BytesIO()
    # By default, the file names the version of matplotlib.
    image.imsave(file, palette[levels], format="png", metadata={"Software": "tff_pcdd"})
    return "data:image/png;base64," + base64.b64encode(file.getvalue()).decode()
