"""Colors that can be read and told apart, also by color-blind readers."""

import base64
import io
import pathlib
import re

import matplotlib.image
import numpy as np
import pytest

from tff_pcdd.report import shades


def linear(color):
    rgb = np.array([int(color[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    return np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)


def contrast(first, second):
    weights = [0.2126, 0.7152, 0.0722]
    darker, brighter = sorted(float(linear(color) @ weights) for color in (first, second))
    return (brighter + 0.05) / (darker + 0.05)


def test_numbers_can_be_read_on_every_shade():
    """4.5 is what WCAG 2 asks of text."""
    for level in range(shades.LEVELS):
        assert contrast(shades.text_color(shades.color(level)), shades.color(level)) >= 4.5


def test_gains_can_be_read_on_their_colors():
    """Their signs are in the cells too, so no color is the only key."""
    colors = re.findall(r"\.([gl]\d) { background: (#\w+); color: (#\w+); }", shades.css())
    assert [name for name, *_ in colors] == [f"{kind}{n}" for kind in "gl" for n in range(1, 5)]
    for _, background, text in colors:
        assert contrast(text, background) >= 4.5
    assert [shades.of_gain(gain, 20.0) for gain in (20.0, 0.1, -10.0, -20.0)] == [
        *("g4", "g1", "l2", "l4")
    ]


def test_shades_become_darker():
    brightness = [linear(shades.color(level)).sum() for level in range(shades.LEVELS)]
    assert brightness == sorted(brightness, reverse=True)
    assert shades.color(0) == "#ffffff"


def test_shades_of_counts():
    levels = shades.of_counts(np.array([[0, 1], [50, 100]]))
    assert levels.tolist() == [[0, 1], [8, 16]]
    # One count of a thousand would make all others look like zero.
    wide = shades.of_counts(np.array([0, 1, 9, 10, 11, 12, 1000]))
    assert wide[0] == 0
    assert wide[-1] == 16
    assert 4 <= wide[3] <= 8
    assert shades.of_counts(np.zeros((2, 2), int)).tolist() == [[0, 0], [0, 0]]


def test_shades_of_a_confusion_matrix():
    levels = shades.of_rows(np.array([[4, 4], [0, 0]]))
    assert levels.tolist() == [[8, 8], [0, 0]]


def test_a_picture():
    levels = np.array([[0, 16, 3], [8, 1, 2]], np.uint8)
    uri = shades.picture(levels)
    file = io.BytesIO(base64.b64decode(uri.removeprefix("data:image/png;base64,")))
    pixels = np.round(255 * matplotlib.image.imread(file)[..., :3]).astype(int)
    wanted = [[shades.color(level) for level in row] for row in levels]
    found = [["#" + "".join(f"{v:02x}" for v in pixel) for pixel in row] for row in pixels]
    assert found == wanted
    assert shades.picture(levels) == uri


@pytest.mark.parametrize("dark", [False, True])
def test_text_can_be_read_on_the_page_and_in_its_boxes(dark):
    """The colors of the page, read from its style; 4.5 is what WCAG 2 asks of text."""
    style = (pathlib.Path(shades.__file__).parent / "templates" / "style.css").read_text()
    light, _, rest = style.partition("@media screen and (prefers-color-scheme: dark)")
    colors = dict(re.findall(r"--(\w+): (#\w{6})", rest if dark else light))
    for background in ("page", "faint", "warm", "cool"):
        for text in ("text", "quiet", "accent", "note"):
            assert contrast(colors[text], colors[background]) >= 4.5, (text, background)
